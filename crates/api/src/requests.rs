//! How long requests took, for Prometheus: by what was asked and how it was answered.
//!
//! Invariant: what is counted are rows of `table` and codes of answers, so that their number is bounded whatever is sent.

use hub::MetricsPage;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds in seconds; one without a bound follows.
const BOUNDS: [(f64, &str); 7] =
    [(0.001, "0.001"), (0.005, "0.005"), (0.025, "0.025"), (0.1, "0.1"), (0.5, "0.5"), (2.5, "2.5"), (10.0, "10")];

#[derive(Default)]
pub struct Requests {
    seen: Mutex<BTreeMap<Kind, Times>>,
}

/// Method, path as in `table`, code of the answer.
type Kind = (&'static str, &'static str, u16);

#[derive(Clone, Copy, Default)]
struct Times {
    /// Of each bound, what took no longer.
    within: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

impl Requests {
    pub fn note(&self, kind: Kind, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let times = seen.entry(kind).or_default();
        for (within, (bound, _)) in times.within.iter_mut().zip(BOUNDS) {
            *within += u64::from(seconds <= bound);
        }
        times.count += 1;
        times.seconds += seconds;
    }

    pub fn tell(&self, page: &mut MetricsPage) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        page.begin(
            "thalweg_hub_request_seconds",
            "histogram",
            "Until requests were answered, by what was asked and the answer.",
        );
        for ((method, path, code), times) in seen {
            let code = code.to_string();
            let labels = [("method", method), ("path", path), ("code", &code)];
            let bounds = BOUNDS.iter().zip(times.within).map(|((_, word), within)| (*word, within));
            for (word, within) in bounds.chain([("+Inf", times.count)]) {
                page.part("_bucket", &[labels[0], labels[1], labels[2], ("le", word)], within as f64);
            }
            page.part("_sum", &labels, times.seconds);
            page.part("_count", &labels, times.count as f64);
        }
    }
}
