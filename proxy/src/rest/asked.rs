//! Queries that several lists share, and what a list of texts looks like in one.

use serde::Deserialize;
use utoipa::IntoParams;

/// Which page.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// Rows of a page, at most 500; left out or 0: 100.
    #[serde(default)]
    pub(super) page_size: u32,
    /// `next_page_token` of the page before.
    #[serde(default)]
    pub(super) page_token: String,
}

/// Texts of a query, separated by commas.
pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
