//! What an endpoint tells Prometheus: counters since its start and gauges of now, in the text exposition format.
//!
//! Invariants:
//! - Labels are words of this program; what clients choose is in none of them. So the number of series is fixed (`SERIES_MAX`).
//! - Who asks learns numbers, and nothing of names, paths or keys.
//!
//! Not here: answering requests (`http`).

mod http;

use crate::governor::{Allotment, HeldBy};
use crate::host::EndpointHost;
pub use http::{Metrics, Place};
use model::Class;
use model::order::Status;
use model::progress::Stage;
use mover::session::{Server, Sums};
use std::fmt::Write;
use std::sync::Arc;

/// Of all metrics together; a test counts them.
#[cfg(test)]
const SERIES_MAX: usize = 100;

const WAYS: [&str; 2] = ["in", "out"];

/// What is told, before it is text.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    pub sessions: u64,
    pub sums: [Sums; 2],
    /// Jobs that run, by direction and class.
    pub jobs: [[u64; 3]; 2],
    /// Bytes a second that the governor saw, by direction and class.
    pub rates: [[f64; 3]; 2],
    /// Jobs that are held, by direction and by what: link, contract, class.
    pub held: [[u64; 3]; 2],
    pub orders: Vec<(Status, u64)>,
}

impl Picture {
    pub fn of(server: &Server, host: &EndpointHost, allotted: &[Allotment]) -> Picture {
        let mut picture = Picture { sessions: server.sessions() as u64, ..Picture::default() };
        picture.sums = host.roster.sums();
        for member in host.roster.members() {
            picture.jobs[usize::from(member.is_sender())][member.who.class as usize - 1] += 1;
        }
        for one in allotted {
            picture.rates[one.way as usize][one.who.class as usize - 1] += one.moves;
            let by = match one.by {
                HeldBy::Free => continue,
                HeldBy::Link => 0,
                HeldBy::Contract(_) => 1,
                HeldBy::GivesWay => 2,
            };
            picture.held[one.way as usize][by] += 1;
        }
        picture.orders = host.orders.get().map(|orders| orders.counts()).unwrap_or_default();
        picture
    }

    /// In the text format, version 0.0.4.
    pub fn text(&self) -> String {
        let mut page = Page::default();
        page.build_info();
        page.begin("thalweg_sessions", "gauge", "Sessions of clients that are open.");
        page.row(&[], self.sessions as f64);
        page.begin("thalweg_jobs", "gauge", "Jobs that run, by the way their content takes and by class.");
        page.by_class(&self.jobs, |jobs| *jobs as f64);
        page.begin(
            "thalweg_class_rate_bytes_per_second",
            "gauge",
            "What jobs move, by class; measured only while rates are shared out.",
        );
        page.by_class(&self.rates, |rate| *rate);
        page.begin("thalweg_held_jobs", "gauge", "Jobs that are held to a rate, by what holds them.");
        for (way, held) in WAYS.iter().zip(&self.held) {
            for (by, jobs) in ["link", "contract", "class"].iter().zip(held) {
                page.row(&[("direction", way), ("by", by)], *jobs as f64);
            }
        }
        page.begin("thalweg_orders", "gauge", "Jobs that clients handed in, by status.");
        for (status, jobs) in &self.orders {
            page.row(&[("status", status.word())], *jobs as f64);
        }
        self.sums(&mut page);
        page.text
    }

    fn sums(&self, page: &mut Page) {
        page.begin("thalweg_jobs_ended_total", "counter", "Jobs that have ended, however they did.");
        page.by_way(&self.sums, |sums| sums.jobs_ended as f64);
        page.begin("thalweg_transfer_bytes_total", "counter", "Content that was moved, what was sent again included.");
        page.by_way(&self.sums, |sums| sums.counts.bytes_sent as f64);
        page.begin("thalweg_resumed_bytes_total", "counter", "Content that an earlier attempt had moved already.");
        page.by_way(&self.sums, |sums| sums.counts.bytes_resumed as f64);
        page.begin("thalweg_files_total", "counter", "Files and links, by what became of them.");
        for (way, sums) in WAYS.iter().zip(&self.sums) {
            let counts = &sums.counts;
            let became =
                [("ok", counts.files_done), ("skipped", counts.files_skipped), ("failed", counts.files_failed)];
            for (result, files) in became {
                page.row(&[("direction", way), ("result", result)], files as f64);
            }
        }
        page.begin("thalweg_stage_seconds_total", "counter", "Time that the lanes of this side spent in each stage.");
        for (way, sums) in WAYS.iter().zip(&self.sums) {
            for stage in Stage::ALL {
                let seconds = sums.times.stage_ns[stage as usize] as f64 / 1e9;
                page.row(&[("direction", way), ("stage", stage.name())], seconds);
            }
        }
        page.begin("thalweg_processor_seconds_total", "counter", "Processor time of the lanes of this side.");
        page.by_way(&self.sums, |sums| sums.times.cpu_ns as f64 / 1e9);
        page.begin("thalweg_tcp_retransmits_total", "counter", "TCP segments that this host sent again.");
        page.row(&[("direction", WAYS[1])], self.sums[1].retransmits as f64);
    }
}

/// A page in the text format, written metric by metric.
#[derive(Default)]
pub struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    pub fn begin(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Label values are words without quotes, backslashes and line ends.
    pub fn row(&mut self, labels: &[(&str, &str)], value: f64) {
        self.part("", labels, value);
    }

    /// A row of a histogram: `suffix` is what follows the metric's name.
    pub fn part(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (at, (label, word)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"{word}\"", if at == 0 { '{' } else { ',' });
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }

    pub fn build_info(&mut self) {
        self.begin("thalweg_build_info", "gauge", "What runs here; the value is 1.");
        self.row(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    }

    pub fn into_text(self) -> String {
        self.text
    }

    fn by_way<T>(&mut self, ways: &[T; 2], value: impl Fn(&T) -> f64) {
        for (way, one) in WAYS.iter().zip(ways) {
            self.row(&[("direction", way)], value(one));
        }
    }

    fn by_class<T>(&mut self, ways: &[[T; 3]; 2], value: impl Fn(&T) -> f64) {
        for (way, classes) in WAYS.iter().zip(ways) {
            for (class, one) in Class::ALL.iter().zip(classes) {
                self.row(&[("direction", way), ("class", class.name())], value(one));
            }
        }
    }
}

/// Tells what `server` and its host do, and goes on when the endpoint ends.
pub(crate) fn teller(
    server: &Arc<Server>,
    host: &Arc<EndpointHost>,
    allotted: impl Fn() -> Vec<Allotment> + Send + 'static,
) -> impl Fn() -> Option<String> + Send + 'static {
    let (server, host) = (Arc::downgrade(server), Arc::downgrade(host));
    move || Some(Picture::of(&*server.upgrade()?, &*host.upgrade()?, &allotted()).text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn picture() -> Picture {
        let mut picture = Picture { sessions: 3, ..Picture::default() };
        picture.sums[1].counts.bytes_sent = 5_000_000_000;
        picture.sums[0].times.stage_ns[Stage::Write as usize] = 1_500_000_000;
        picture.orders = Status::ALL.iter().map(|status| (*status, 1)).collect();
        picture
    }

    /// What the format's specification asks of each line.
    #[test]
    fn the_page_keeps_to_the_format_and_to_its_bound() {
        let text = picture().text();
        let (mut declared, mut series) = (HashSet::new(), HashSet::new());
        let mut current = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(declared.insert(name) && name.starts_with("thalweg_"), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                current = name;
                continue;
            }
            if line.starts_with("# HELP ") {
                continue;
            }
            let (key, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok_and(|value| value.is_finite() && value >= 0.0), "{line}");
            assert!(
                key == current || key.strip_prefix(current).is_some_and(|labels| labels.starts_with('{')),
                "{line}"
            );
            assert!(series.insert(key), "{line} is told twice");
        }
        assert!(text.ends_with('\n') && series.len() <= SERIES_MAX, "{} series", series.len());
        assert!(text.contains("thalweg_transfer_bytes_total{direction=\"out\"} 5000000000\n"), "{text}");
        assert!(text.contains("thalweg_stage_seconds_total{direction=\"in\",stage=\"write\"} 1.5\n"), "{text}");
    }

    /// Every expression of the dashboard that ships names metrics and labels that there are.
    #[test]
    fn the_dashboard_asks_for_metrics_that_there_are() {
        let dashboard = include_str!("../../../../packaging/grafana/thalweg-endpoint.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let text = picture().text();
        let known = |name: &str| text.contains(&format!("# TYPE {name} "));
        let mut asked = HashSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            assert!(panel["title"].is_string() && panel["gridPos"]["w"].is_u64(), "{panel}");
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let names: Vec<_> =
                    expression.split(|c| !is_name(c)).filter(|word| word.starts_with("thalweg_")).collect();
                assert!(!names.is_empty(), "{expression}");
                for name in names {
                    assert!(known(name), "{expression}: there is no {name}");
                    asked.insert(name.to_owned());
                }
                for label in expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next()) {
                    for label in label.split(',').map(str::trim).filter(|label| *label != "instance") {
                        assert!(text.contains(&format!("{label}=\"")), "{expression}: nothing has {label}");
                    }
                }
            }
        }
        assert!(asked.len() >= 8, "{asked:?}");
    }
}
