//! The stream of events: server-sent events with durable numbers, which replays what was missed and then goes on.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hub::{Subscription, Watch};
use std::fmt::Write;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

/// A comment is sent when nothing else was for so long.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// How long one wait for an event holds its thread.
const WAIT: Duration = Duration::from_millis(500);
/// Answers of events that wait for a slow reader.
const WAITING_MAX: usize = 16;

/// The numbers that were asked for are none of this hub's.
pub fn reset(last: i64) -> Response {
    stream(Body::from(format!("event: reset\nid: {last}\ndata: {{\"last\":{last}}}\n\n")))
}

/// Sends what a subscription yields, and each second what runs, until the reader goes or the hub ends. Rates have no number: what was
/// missed of them is not sent again.
pub fn follow(
    mut subscription: Subscription,
    mut rates: Option<Watch>,
    mut stopped: watch::Receiver<bool>,
) -> Response {
    let (sender, receiver) = mpsc::channel::<Bytes>(WAITING_MAX);
    tokio::spawn(async move {
        let mut quiet = Duration::ZERO;
        if sender.send(Bytes::from_static(b": connected\n\n")).await.is_err() {
            return;
        }
        loop {
            let asked = spawn_blocking(move || {
                let events = subscription.next(WAIT);
                (subscription, events)
            });
            let events = tokio::select! {
                asked = asked => match asked {
                    Ok((returned, Ok(Some(events)))) => { subscription = returned; events }
                    _ => return,
                },
                _ = stopped.wait_for(|is_over| *is_over) => return,
            };
            let mut text = String::new();
            for event in &events {
                let _ = write!(text, "id: {}\nevent: status\ndata: {}\n\n", event.id, event.data);
            }
            if let Some(news) = rates.as_mut().and_then(Watch::news) {
                let _ = write!(text, "event: rates\ndata: {news}\n\n");
            }
            quiet = if text.is_empty() { quiet + WAIT } else { Duration::ZERO };
            if quiet >= QUIET_MAX {
                quiet = Duration::ZERO;
                text.push_str(": \n\n");
            }
            if !text.is_empty() && sender.send(text.into()).await.is_err() || sender.is_closed() {
                return;
            }
        }
    });
    stream(Body::new(Received(receiver)))
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
