//! The process' metrics, in the text form of Prometheus.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds of the duration histograms, in seconds.
const DURATION_BUCKETS_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// The recorder of this process, installed at the first call. `None`: the process has another one,
/// which a page of its own shows.
pub(crate) fn handle() -> Option<&'static PrometheusHandle> {
    HANDLE.get_or_init(install).as_ref()
}

fn install() -> Option<PrometheusHandle> {
    let durations = Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(durations, DURATION_BUCKETS_SECONDS)
        .inspect_err(|error| tracing::error!(error = %error, "histogram buckets"))
        .ok()?;
    builder
        .install_recorder()
        .inspect_err(|error| tracing::debug!(error = %error, "metrics are recorded elsewhere"))
        .ok()
}
