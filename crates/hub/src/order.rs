//! Orders as endpoints know them: what an attempt is called there, and what is told of it in the queue's words.

pub use crate::audit::shown;
use daemon::Endpoint;
use daemon::hand_in::{HandIn, Told};
use model::name::Escaped;
use model::order::{Kind, Reason, Role};
use model::{FailureKind, JobId, TransferSpec};
use queue::{Answer, Ended, News, Work};
use serde_json::{Value, json};
use transfer::HostShare;

/// An attempt of a job, as it is handed in.
pub struct Attempt {
    pub job: JobId,
    pub attempt: u32,
    pub kind: Kind,
    pub role: Role,
    pub peer: String,
    pub spec: TransferSpec,
    /// What is known of the job speaks for one host.
    pub is_for_one: bool,
    /// Several hosts could not do it together.
    pub is_alone: bool,
}

impl Attempt {
    pub fn id(&self) -> JobId {
        order_id(self.job, self.attempt)
    }

    pub fn order<'a>(&'a self, executor: &'a Endpoint, peer: &'a Endpoint) -> HandIn<'a> {
        let Attempt { kind, role, spec, .. } = self;
        let job = self.id();
        HandIn { job, kind: *kind, role: *role, executor, peer, spec, warrant_id: warrant_id(job) }
    }
}

/// The name of one attempt's order. Another attempt has another one, so that nothing old is taken for something new.
pub fn order_id(job: JobId, attempt: u32) -> JobId {
    let digest = net::sha256(&[&b"thalweg order 1"[..], &job.0, &attempt.to_le_bytes()].concat());
    JobId::from_slice(&digest[..16]).expect("half of a SHA-256 is 16 bytes long")
}

/// What all warrants of an order are called.
pub fn warrant_id(order: JobId) -> [u8; 16] {
    let digest = net::sha256(&[&b"thalweg warrant 1"[..], &order.0].concat());
    digest[..16].try_into().expect("half of a SHA-256 is 16 bytes long")
}

/// What an executor says, in the queue's words.
pub fn answer(told: &Told) -> Answer {
    let news = &told.news;
    let work = Work {
        files_listed: news.files_listed,
        bytes_listed: news.bytes_listed,
        is_listed: news.is_listing_complete,
        files_done: news.files_done,
        bytes_done: news.bytes_done,
    };
    match &told.ended {
        Some(ended) if told.status().is_end() => Answer::Ended(Ended {
            code: ended.code as i32,
            text: shown(&ended.text),
            hint: shown(&ended.hint),
            work: Work {
                files_listed: [ended.files_done, ended.files_skipped, ended.files_failed]
                    .into_iter()
                    .fold(0, u64::saturating_add)
                    .max(work.files_listed),
                files_done: ended.files_done,
                bytes_done: ended.bytes,
                is_listed: true,
                ..work
            },
        }),
        _ => Answer::News(News {
            status: told.status(),
            reason: Reason::from_number(news.reason).unwrap_or(Reason::None),
            text: shown(&news.text),
            until: (news.until > 0).then(|| (news.until as i64).saturating_mul(1000)),
            work,
        }),
    }
}

/// What is kept of an attempt's end, with what each of several hosts has done of it.
pub fn report(told: &Told, hosts: &[HostShare]) -> Option<Value> {
    let ended = told.ended.as_ref()?;
    let mut report = json!({"code": ended.code as i32, "message": shown(&ended.text), "hint": shown(&ended.hint),
        "files": {"ok": ended.files_done, "skipped": ended.files_skipped, "failed": ended.files_failed},
        "directories": ended.directories, "bytes": ended.bytes, "sent": ended.bytes_sent, "removed": ended.removed,
        "seconds": ended.milliseconds as f64 / 1000.0, "bottleneck": shown(&ended.bottleneck), "durable": shown(&ended.durable),
        "failures_untold": told.events.as_ref().map_or(0, |events| events.untold)});
    if !hosts.is_empty() {
        report["hosts"] = hosts.iter().map(share).collect();
    }
    Some(report)
}

fn share(host: &HostShare) -> Value {
    let HostShare { name, files, bytes, bytes_sent: _, slices, lost, bottleneck } = host;
    json!({"name": shown(name), "bytes": bytes, "files": files, "slices": slices, "lost": lost,
        "bottleneck": shown(bottleneck)})
}

/// Path, kind and text of what failed.
pub fn failures(told: &Told) -> Vec<(String, String, String)> {
    let events = told.events.iter().flat_map(|events| &events.failures);
    let one = |failure: &daemon::hand_in::OrderFailure| {
        let kind = FailureKind::from_number(failure.kind).name().to_owned();
        (Escaped(&failure.path).to_string(), kind, shown(&failure.text))
    };
    events.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::hand_in::{OrderEnded, OrderNews};

    #[test]
    fn a_report_names_the_hosts_where_there_were_several() {
        let ended = Some(OrderEnded::default());
        let told = Told { news: OrderNews::default(), ended, events: None };
        let host = HostShare { name: "a.a2".to_owned(), files: 3, slices: 2, ..HostShare::default() };
        assert!(report(&told, &[]).unwrap().get("hosts").is_none());
        let hosts = report(&told, &[host]).unwrap()["hosts"].take();
        let one = json!({"name": "a.a2", "bytes": 0, "files": 3, "slices": 2, "lost": 0, "bottleneck": ""});
        assert_eq!(hosts, json!([one]));
    }

    #[test]
    fn what_an_endpoint_says_of_an_order_is_kept_up_to_a_length() {
        let news = OrderNews { text: "x".repeat(16_000), ..OrderNews::default() };
        let Answer::News(news) = answer(&Told { news, ended: None, events: None }) else { panic!("it has not ended") };
        assert_eq!(news.text.len(), 1024);
    }
}
