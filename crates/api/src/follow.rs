//! The stream of events: server-sent events with durable numbers, which replays what was missed and then goes on.

use crate::served::Served;
use crate::streams::Place;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hub::{Principal, Subscription, Watch};
use model::mutant;
use std::fmt::Write;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// What runs is counted each second, and looked at twice as often.
const RATES_EVERY: Duration = Duration::from_millis(500);
/// A comment is sent when nothing else was for so long.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// How often it is looked at whether who follows may still do so.
const LOOK: Duration = Duration::from_secs(3);
/// For a reader to take what was sent.
const SLOW_MAX: Duration = Duration::from_secs(60);
/// Answers of events that wait for a slow reader.
const WAITING_MAX: usize = 1;

/// The numbers that were asked for are none of this hub's.
pub fn reset(last: i64) -> Response {
    stream(Body::from(format!("event: reset\nid: {last}\ndata: {{\"last\":{last}}}\n\n")))
}

/// Sends what a subscription yields, and each second what runs, until the reader goes or may not read any more, or the hub ends. Rates
/// have no number: what was missed of them is not sent again.
pub fn follow(
    subscription: Subscription,
    rates: Option<Watch>,
    place: Place,
    served: &Served,
    who: Principal,
) -> Response {
    let (sender, receiver) = mpsc::channel::<Bytes>(WAITING_MAX);
    let (news, stopped, hub) = (served.streams.news(), served.stopped.clone(), served.hub.clone());
    tokio::spawn(async move {
        let _place = place;
        let is_allowed = move || hub.access().is_current(&who) || mutant::is_on("stream-outlives-its-token");
        send(subscription, rates, &sender, news, stopped, &is_allowed).await;
    });
    stream(Body::new(Received(receiver)))
}

/// Nothing says why it ended: the reader asks again, and hears.
async fn send(
    mut subscription: Subscription,
    mut rates: Option<Watch>,
    sender: &mpsc::Sender<Bytes>,
    mut news: watch::Receiver<i64>,
    mut stopped: watch::Receiver<bool>,
    is_allowed: &(dyn Fn() -> bool + Send + Sync),
) -> Option<()> {
    let mut quiet_since = Instant::now();
    let mut text = ": connected\n\n".to_owned();
    loop {
        news.mark_unchanged();
        if !is_allowed() {
            return None;
        }
        let events = match subscription.is_behind() {
            true => {
                let (returned, events) = spawn_blocking(move || {
                    let events = subscription.poll();
                    (subscription, events)
                })
                .await
                .ok()?;
                subscription = returned;
                events
            }
            false => subscription.poll(),
        };
        for event in events.ok()?? {
            let _ = write!(text, "id: {}\nevent: status\ndata: {}\n\n", event.id, event.data);
        }
        if let Some(news) = rates.as_mut().and_then(Watch::news) {
            let _ = write!(text, "event: rates\ndata: {news}\n\n");
        }
        if text.is_empty() && quiet_since.elapsed() >= QUIET_MAX {
            text.push_str(": \n\n");
        }
        if !text.is_empty() {
            quiet_since = Instant::now();
            timeout(SLOW_MAX, sender.send(std::mem::take(&mut text).into())).await.ok()?.ok()?;
        }
        if subscription.has_more() {
            continue;
        }
        tokio::select! {
            changed = news.changed() => changed.ok()?,
            () = sleep(if rates.is_some() { RATES_EVERY } else { LOOK }) => {}
            () = sender.closed() => return None,
            _ = stopped.wait_for(|is_over| *is_over) => return None,
        }
    }
}

fn stream(body: Body) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A channel as a body.
struct Received(mpsc::Receiver<Bytes>);

impl axum::body::HttpBody for Received {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}
