//! Database URLs.

use std::str::FromStr as _;

use sqlx::postgres::PgConnectOptions;

/// Reads a URL, which names one host.
///
/// The client library takes the text of several hosts for one name. Trying them here would not be
/// enough: a pool makes its connections by one set of options, and gives up when a host does not
/// answer, so it would not follow the primary to another host.
pub(crate) fn options(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    if names_several_hosts(url) {
        return Err(sqlx::Error::Configuration(
            "it names several hosts; name one that leads to the primary: a DNS record that the \
             failover moves, a virtual address, or a pooler in session mode"
                .into(),
        ));
    }
    PgConnectOptions::from_str(url)
}

fn names_several_hosts(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    let query = tail.split_once('?').map_or("", |(_, query)| query);
    let of_query = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .filter(|(name, _)| ["host", "hostaddr", "port"].contains(name))
        .map(|(_, value)| value);
    std::iter::once(hosts)
        .chain(of_query)
        .any(|text| text.contains(',') || text.to_ascii_lowercase().contains("%2c"))
}

#[cfg(test)]
mod tests {
    use super::{names_several_hosts, options};

    #[test]
    fn several_hosts_are_seen_wherever_they_stand() {
        for (url, several) in [
            ("postgres://a,b/db", true),
            ("postgres://u:p@a:5432,b:5433/db?target_session_attrs=read-write", true),
            ("postgres://u:p@a%2Cb/db", true),
            ("postgres:///db?host=a,b", true),
            ("postgres:///db?sslmode=require&port=5432%2c5433", true),
            ("postgres://u:p,w@a/db", false),
            ("postgres://u:p@a/db,x?options=-c%20a%3Db,c", false),
            ("postgres://u@[::1]:5432/db", false),
            ("postgres://a", false),
        ] {
            assert_eq!(names_several_hosts(url), several, "{url}");
            if several {
                let error = options(url).expect_err(url).to_string();
                assert!(error.contains("several hosts") && !error.contains("p@"), "{error}");
            }
        }
        options("postgres://u:p@a:5432/db").expect("one host");
    }
}
