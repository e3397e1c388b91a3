//! Secrets of endpoints: resolved in the worker at the moment of the call, from its environment or
//! from files, and nowhere else.

use std::{
    ffi::OsString,
    fmt::{self, Write as _},
    io,
    path::PathBuf,
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use secrecy::{ExposeSecret as _, SecretString};

use undolog_core::fn_body::{Piece, RenderedCall};

use super::{error::Refused, guard::guard};

/// What a URL percent-encodes in a value: everything but unreserved characters.
const UNRESERVED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The folder of secrets that every organisation may use; no slug looks like it.
const SHARED: &str = "_shared";
/// Bytes of one secret, at most: a token or a key, never a document.
const SECRET_BYTES_MAX: usize = 16 * 1024;

/// Shorter secrets are not looked for in answers.
const SECRET_BYTES_MIN: usize = 4;

/// Where secrets come from.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct SecretSource {
    /// Folder with `<org slug>/<NAME>` and `_shared/<NAME>` files.
    pub dir: Option<PathBuf>,
}

fn placeholder(name: &str) -> String {
    format!("{{secret:{name}}}")
}

/// Secrets that one call used, to take them out of what comes back.
#[derive(Default)]
pub(crate) struct Used(Vec<(String, SecretString)>);

impl fmt::Debug for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl SecretSource {
    /// The variables of the environment that [`Self::resolve`] looks at, in this order.
    fn variables(org_slug: &str, name: &str) -> [String; 2] {
        // Two underscores, which no name may have: another organisation cannot name this one's.
        let own = format!("UNDOLOG_SECRET_{org_slug}__{name}");
        [own, format!("UNDOLOG_SHARED_SECRET_{name}")].map(|name| env_name(&name))
    }

    /// What a process that makes this call and no other needs of the environment: the variables
    /// that hold a secret which the call names.
    #[must_use]
    pub fn environment_of(org_slug: &str, call: &RenderedCall) -> Vec<(String, OsString)> {
        let names = named_by(call).into_iter().filter(|name| is_name(name));
        names
            .flat_map(|name| Self::variables(org_slug, name))
            .filter_map(|variable| {
                let value = std::env::var_os(&variable)?;
                Some((variable, value))
            })
            .collect()
    }

    /// Resolves a secret of an organisation: its own first, then the one that was said to be for
    /// all. Whoever may register an endpoint can have such a secret sent there, so that nothing is
    /// shared by accident. An organisation that has its own never falls back because of an error.
    async fn resolve(&self, org_slug: &str, name: &str) -> Result<SecretString, Refused> {
        for variable in Self::variables(org_slug, name) {
            if let Ok(value) = std::env::var(&variable) {
                return Ok(SecretString::from(value));
            }
        }
        let Some(dir) = &self.dir else { return Err(Refused::Secret(name.to_owned())) };
        for path in [dir.join(org_slug).join(name), dir.join(SHARED).join(name)] {
            match tokio::fs::read_to_string(&path).await {
                Ok(text) if text.len() > SECRET_BYTES_MAX => {
                    return Err(unreadable(name, io::ErrorKind::InvalidData));
                }
                // Files end with a newline that is no part of the secret.
                Ok(text) => return Ok(SecretString::from(text.trim_end_matches(['\r', '\n']))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
                Err(error) => return Err(unreadable(name, error.kind())),
            }
        }
        Err(Refused::Secret(name.to_owned()))
    }

    /// Resolves one secret by its name.
    pub(crate) async fn named(&self, org_slug: &str, name: &str) -> Result<SecretString, Refused> {
        if !is_name(name) {
            return Err(Refused::Secret(name.to_owned()));
        }
        self.resolve(org_slug, name).await
    }

    /// Resolves every secret that a call names.
    pub(crate) async fn of_call(
        &self,
        org_slug: &str,
        call: &RenderedCall,
    ) -> Result<Used, Refused> {
        let mut used = Used::default();
        for name in named_by(call) {
            used.0.push((name.to_owned(), self.named(org_slug, name).await?));
        }
        Ok(used)
    }
}

/// The secrets that a call names, each once.
fn named_by(call: &RenderedCall) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let texts = call.headers.iter().map(|(_, pieces)| pieces);
    let bodies = call.body_secrets.iter().map(|(_, pieces)| pieces);
    for piece in texts.chain(bodies).chain([&call.url]).flatten() {
        if let Piece::Secret(name) | Piece::UrlSecret(name) = piece
            && !names.contains(&name.as_str())
        {
            names.push(name);
        }
    }
    names
}

fn unreadable(name: &str, why: io::ErrorKind) -> Refused {
    Refused::SecretUnreadable { name: name.to_owned(), why }
}

/// A name that cannot leave its folder, fits an environment variable, and cannot be taken for an
/// organisation's and its own.
fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !name.is_empty()
        && name.len() <= 128
        && !name.contains("__")
        && !name.starts_with('_')
        && name.bytes().all(is_plain)
}

/// In capitals, as environment variables are written.
fn env_name(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

impl Used {
    /// A secret by its name.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, secret)| secret.expose_secret().to_owned())
    }

    /// Takes every used secret out of an answer, in each encoding in which an endpoint may echo it.
    pub(crate) fn redact(&self, bytes: Vec<u8>) -> Vec<u8> {
        if !guard("egress.redact") {
            return bytes;
        }
        let mut forms: Vec<(Vec<u8>, &str)> = Vec::new();
        for (name, secret) in &self.0 {
            let secret = secret.expose_secret();
            // A very short one is no secret, and stands by chance in many answers.
            if secret.len() >= SECRET_BYTES_MIN {
                forms.extend(encoded(secret).into_iter().map(|form| (form, name.as_str())));
            }
        }
        // The longest first: a form can be the beginning of another one.
        forms.sort_by_key(|(form, _)| std::cmp::Reverse(form.len()));
        forms.dedup();
        forms
            .iter()
            .fold(bytes, |bytes, (form, name)| replaced(bytes, form, placeholder(name).as_bytes()))
    }
}

/// Every form of a secret that may come back: as it is, in a URL, in a form, in JSON and in base64,
/// alone or at any place of a longer text, such as the password of `Basic`.
fn encoded(secret: &str) -> Vec<Vec<u8>> {
    let url = url_encoded(secret);
    let json = json_escaped(secret);
    let mut forms = vec![
        secret.to_owned(),
        json.replace('/', "\\/"),
        json,
        lower_percent(&url),
        url.replace("%20", "+"),
        lower_percent(&url).replace("%20", "+"),
        url,
        hex(secret.as_bytes()),
        hex(secret.as_bytes()).to_ascii_uppercase(),
    ];
    for shift in 0..3 {
        let standard = base64_inside(secret.as_bytes(), shift);
        if standard.len() >= SECRET_BYTES_MIN {
            forms.push(standard.replace('/', "\\/"));
            forms.push(standard.replace('+', "-").replace('/', "_"));
            forms.push(url_encoded(&standard));
            forms.push(standard);
        }
    }
    forms.sort();
    forms.dedup();
    forms.into_iter().filter(|form| !form.is_empty()).map(String::into_bytes).collect()
}

/// What base64 makes of a text that begins `shift` bytes into a group of three: the characters that
/// stand for nothing but the text, whatever is around it.
fn base64_inside(text: &[u8], shift: usize) -> String {
    let mut bytes = vec![0; shift];
    bytes.extend_from_slice(text);
    let encoded = STANDARD_NO_PAD.encode(&bytes);
    // Characters that hold bits of what is before, and of what comes after.
    let first = (shift * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    encoded.get(first..last).unwrap_or_default().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The same with the digits of each `%2F` in lower case.
fn lower_percent(url: &str) -> String {
    let mut left = 0;
    let lower = |c: char| {
        if c == '%' {
            left = 3;
        }
        let is_digit = left > 0;
        left = usize::saturating_sub(left, 1);
        if is_digit { c.to_ascii_lowercase() } else { c }
    };
    url.chars().map(lower).collect()
}

fn replaced(haystack: Vec<u8>, needle: &[u8], by: &[u8]) -> Vec<u8> {
    if haystack.len() < needle.len() {
        return haystack;
    }
    let mut out = Vec::with_capacity(haystack.len());
    let mut at = 0;
    while at < haystack.len() {
        if haystack[at..].starts_with(needle) {
            out.extend_from_slice(by);
            at += needle.len();
        } else {
            out.push(haystack[at]);
            at += 1;
        }
    }
    out
}

/// The secret as a part of a URL that cannot change the URL's structure.
fn url_encoded(secret: &str) -> String {
    percent_encoding::utf8_percent_encode(secret, UNRESERVED).to_string()
}

/// The secret as a part of a JSON string.
fn json_escaped(secret: &str) -> String {
    let quoted = serde_json::Value::from(secret).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &std::path::Path, name: &str, text: &str) {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    #[tokio::test]
    async fn an_organisation_s_own_secret_comes_first() {
        let dir = std::env::temp_dir().join(format!("undolog-secrets-{}", uuid::Uuid::now_v7()));
        write(&dir, "_shared/TOKEN", "shared\n");
        write(&dir, "OURS", "the service's own\n");
        write(&dir, "acme/TOKEN", "own\r\n");
        let source = SecretSource { dir: Some(dir.clone()) };
        for (org, expected) in [("acme", "own"), ("other", "shared")] {
            let secret = source.resolve(org, "TOKEN").await.expect("a secret");
            assert_eq!(secret.expose_secret(), expected);
        }
        // What was not said to be for all is for nobody.
        for name in ["ABSENT", "OURS"] {
            let missing = source.resolve("acme", name).await;
            assert!(matches!(missing, Err(Refused::Secret(missing)) if missing == name));
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_name_cannot_leave_the_folder() {
        for name in ["../etc/passwd", "a/b", "", "a.b", "ACME__TOKEN", "_TOKEN"] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_name("TOKEN_2"));
    }

    #[test]
    fn an_echoed_secret_is_taken_out_in_every_form() {
        let used = Used(vec![("T".to_owned(), SecretString::from("p/w\"1"))]);
        let answer = b"a p/w\"1 b p%2Fw%221 c p/w\\\"1 d\0\xff".to_vec();
        assert_eq!(used.redact(answer), b"a {secret:T} b {secret:T} c {secret:T} d\0\xff".to_vec());
        assert_eq!(format!("{used:?}"), "[\"T\"]");
    }

    #[test]
    fn no_encoding_hides_a_secret() {
        let secret = "p/w d+S3cret/x\u{fc}";
        let used = Used(vec![("T".to_owned(), SecretString::from(secret))]);
        let percent = url_encoded(secret);
        let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
        let mut echoes = vec![
            secret.to_owned(),
            percent.clone(),
            lower_percent(&percent),
            percent.replace("%20", "+"),
            json_escaped(secret).replace('/', "\\/"),
            hex(secret.as_bytes()),
        ];
        for user in ["", "u", "us", "use", "user"] {
            let basic = encode(format!("{user}:{secret}"));
            echoes.push(basic.replace('/', "\\/"));
            echoes.push(url_encoded(&basic));
            echoes.push(basic.replace('+', "-").replace('/', "_"));
            echoes.push(basic);
            echoes.push(encode(format!("{user}{secret} and more")));
        }
        for echo in echoes {
            let kept = used.redact(format!("a {echo} b").into_bytes());
            let kept = String::from_utf8(kept).expect("a text");
            assert!(kept.contains("{secret:T}"), "{echo}: {kept}");
            for part in ["S3cret", "cret/x"] {
                assert!(!kept.contains(part), "{echo}: {kept}");
            }
        }
    }

    #[test]
    fn a_very_short_secret_does_not_garble_answers() {
        let used = Used(vec![("T".to_owned(), SecretString::from("a"))]);
        assert_eq!(used.redact(b"a banana".to_vec()), b"a banana".to_vec());
    }

    #[test]
    fn environment_names_are_capitals() {
        assert_eq!(env_name("a_my-org__TOKEN"), "A_MY_ORG__TOKEN");
    }
}
