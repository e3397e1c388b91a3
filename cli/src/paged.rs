//! Lists are read page by page.

use crate::error::CliError;

/// The most rows of one page.
const PAGE_MAX: u32 = undolog_core::limits::PAGE_MAX;

/// Reads pages until the last one, or until `limit` rows are there; 0 means all. `page` answers the
/// rows of one page and the token of the next.
pub(crate) async fn all<T>(
    limit: u32,
    page: impl AsyncFn(u32, String) -> Result<(Vec<T>, String), CliError>,
) -> Result<Vec<T>, CliError> {
    let mut rows = Vec::new();
    let mut token = String::new();
    loop {
        let found = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let size = match limit {
            0 => PAGE_MAX,
            limit => limit.saturating_sub(found).min(PAGE_MAX),
        };
        if size == 0 {
            return Ok(rows);
        }
        let (more, next) = page(size, token).await?;
        rows.extend(more);
        if next.is_empty() {
            return Ok(rows);
        }
        token = next;
    }
}
