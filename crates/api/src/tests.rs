//! The interface as a whole, without sockets: a hub in a directory of its own, and requests as connections hand them on.

use crate::asking::Peer;
use crate::bodies::{ALL_KIB_MAX, Bodies, OWN_KIB_MAX};
use crate::failures::Failures;
use crate::gate::gate;
use crate::paces::Paces;
use crate::routes::router;
use crate::served::Served;
use crate::sessions::Sessions;
use crate::streams::Streams;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use hub::{Hub, Options, Principal, Scopes};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tower_service::Service;

struct Room {
    _dir: tempfile::TempDir,
    hub: Hub,
    served: Served,
    router: Router,
    _stop: watch::Sender<bool>,
}

const REMOTE: &str = "192.0.2.7:5000";

fn room() -> Room {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(Options::new(dir.path().to_owned())).unwrap();
    let (stop, stopped) = watch::channel(false);
    let served = Served {
        streams: Streams::start(hub.clone()).unwrap(),
        hub: hub.clone(),
        stopped,
        sessions: Arc::new(Sessions::default()),
        failures: Arc::new(Failures::default()),
        paces: Arc::new(Paces::default()),
        requests: Arc::default(),
        bodies: Arc::new(Bodies::default()),
        names: Arc::new(["hub.example".to_owned()]),
        url: None,
    };
    Room { _dir: dir, hub, router: router(served.clone()), served, _stop: stop }
}

impl Room {
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
        self.router.clone().call(Room::request(method, path, headers, Body::empty())).await.unwrap()
    }

    fn request(method: &str, path: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
        let address = REMOTE.parse().unwrap();
        let peer = Peer::Remote { address, local: "192.0.2.1:7741".parse().unwrap(), is_tls: true };
        let mut request = Request::builder().method(method).uri(path).extension(peer);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "hub.example:7741");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body).unwrap()
    }

    fn admin(&self) -> Principal {
        Principal::local(0)
    }

    fn token(&self, name: &str, scopes: &str) -> String {
        let scopes = Scopes::parse(scopes).unwrap();
        let token = self.hub.add_token(&self.admin(), name, scopes, Duration::from_secs(60)).unwrap();
        format!("Bearer {token}")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.hub.stop();
    }
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(test);
}

#[test]
fn a_name_that_is_not_the_hubs_is_not_answered() {
    run(async {
        let room = room();
        let token = room.token("a", "read");
        for (host, status) in [
            ("evil.example", 421),
            ("evil.example:7741", 421),
            ("hub.example.evil.example", 421),
            ("[evil", 421),
            ("hub.example", 200),
            ("HUB.example.:7741", 200),
            ("192.0.2.1:7741", 200),
            ("[2001:db8::1]:7741", 200),
        ] {
            let answer = room.ask("GET", "/api/v1/session", &[("host", host), ("authorization", &token)]).await;
            assert_eq!(answer.status().as_u16(), status, "{host}");
        }
    });
}

#[test]
fn what_a_browser_sends_by_itself_changes_nothing() {
    run(async {
        let room = room();
        let code = room.served.sessions.code(&room.admin());
        let (_, secret) = room.served.sessions.redeem(&code).unwrap();
        let cookie = format!("other=1; thalweg_7741={secret}");
        for (headers, status) in [
            (&[][..], 403),
            (&[("origin", "https://evil.example")], 403),
            (&[("origin", "http://hub.example:7741")], 403),
            (&[("sec-fetch-site", "cross-site")], 403),
            (&[("sec-fetch-site", "same-origin")], 404),
            (&[("origin", "https://hub.example:7741")], 404),
        ] {
            let headers = [headers, &[("cookie", &cookie[..])]].concat();
            let answer = room.ask("DELETE", "/api/v1/tokens/nobody", &headers).await;
            assert_eq!(answer.status().as_u16(), status, "{headers:?}");
        }
        // A token was put there by whoever asks; the cookie of another port is none of ours.
        let token = room.token("a", "admin");
        let answer = room.ask("DELETE", "/api/v1/tokens/nobody", &[("authorization", &token)]).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        let other = format!("thalweg_77411={secret}; thalweg={secret}");
        assert_eq!(room.ask("GET", "/api/v1/session", &[("cookie", &other)]).await.status(), StatusCode::UNAUTHORIZED);
    });
}

async fn told(answer: Response<Body>) -> serde_json::Value {
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    serde_json::from_slice(&to_bytes(answer.into_body(), 1 << 16).await.unwrap()).unwrap()
}

#[test]
fn whatever_is_refused_is_a_problem_that_says_why() {
    run(async {
        let room = room();
        let token = room.token("a", "admin");
        for (method, path, status, why) in [
            ("GET", "/api/v1/events?after=x", 400, "query string"),
            ("GET", "/api/v1/jobs?colour=red", 400, "colour"),
            ("GET", "/api/v1/jobs/0123456789abcdef0123456789abcdef/failures?after=x", 400, "query string"),
            ("GET", "/api/v1/audit?limit=x", 400, "query string"),
            ("DELETE", "/api/v1/rules/x", 400, "u64"),
            ("PUT", "/api/v1/jobs", 405, "method not allowed"),
            ("GET", "/api/v1/nothing", 404, "nothing of this name"),
        ] {
            let answer = room.ask(method, path, &[("authorization", &token)]).await;
            assert_eq!(answer.status().as_u16(), status, "{path}");
            assert_eq!(answer.headers().contains_key("allow"), status == 405, "{path}");
            let told = told(answer).await;
            assert!(told["detail"].as_str().unwrap().contains(why), "{path}: {told}");
        }
    });
}

#[test]
fn a_key_that_stands_twice_is_refused_wherever_a_body_is_taken() {
    run(async {
        let room = room();
        let token = room.token("a", "admin");
        for (method, path, body) in [
            ("POST", "/api/v1/jobs", r#"{"source":"a:x","source":"a:z","destination":"b:y"}"#),
            ("POST", "/api/v1/schedules", r#"{"name":"n","times":{"at":["01:00"],"at":["02:00"]},"job":{}}"#),
            ("POST", "/api/v1/tokens", r#"{"name":"n","name":"m","scopes":["read"],"seconds":60}"#),
            ("POST", "/api/v1/rules", r#"{"rule":"allow token:n read a:","rule":"allow token:m read a:"}"#),
            ("PATCH", "/api/v1/endpoints/a/terms", r#"{"version":"1","version":"2"}"#),
        ] {
            let length = body.len().to_string();
            let headers = [("authorization", &token[..]), ("content-length", &length[..])];
            let answer = room.router.clone().call(Room::request(method, path, &headers, body.into())).await.unwrap();
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}");
            let told = told(answer).await;
            assert!(told["detail"].as_str().unwrap().contains("stands twice"), "{path}: {told}");
        }
    });
}

#[test]
fn a_body_takes_its_room_until_its_request_is_answered() {
    run(async {
        let room = room();
        let (came, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (has_come, may_go) = (came.clone(), go.clone());
        let answer = move |_: Bytes| {
            let (has_come, may_go) = (has_come.clone(), may_go.clone());
            async move {
                has_come.notify_one();
                may_go.notified().await;
                "done"
            }
        };
        let mut router: Router = Router::new()
            .route("/api/v1/jobs", post(answer))
            .layer(axum::middleware::from_fn_with_state(room.served.clone(), gate));
        let (token, body) = (room.token("a", "submit"), Body::from(vec![b'x'; 5000]));
        let headers = [("authorization", &token[..]), ("content-length", "5000")];
        let free = || room.served.bodies.all.available_permits();
        let before = free();
        let asked = tokio::spawn(router.call(Room::request("POST", "/api/v1/jobs", &headers, body)));
        came.notified().await;
        assert_eq!(free(), before - 5);
        // Who sent it goes away; what came is still there.
        asked.abort();
        assert!(asked.await.is_err());
        assert_eq!(free(), before - 5);
        go.notify_one();
        let given_back = async {
            while free() < before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), given_back).await.unwrap();
    });
}

/// A body that does not come.
struct Stalled;

impl HttpBody for Stalled {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

#[test]
fn bodies_of_one_sender_that_do_not_come_keep_nobody_else_from_sending() {
    run(async {
        let room = room();
        let (one, other) = (room.token("a", "submit"), room.token("b", "admin"));
        let batch = [("authorization", &one[..]), ("content-length", "8388608")];
        let mut stalled: Vec<_> = (0..8)
            .map(|_| Room::request("POST", "/api/v1/jobs:batch", &batch, Body::new(Stalled)))
            .map(|request| Box::pin(room.router.clone().call(request)))
            .collect();
        for asked in &mut stalled {
            // Each has its room then, or waits for it.
            let polled = std::future::poll_fn(|context| Poll::Ready(asked.as_mut().poll(context)));
            assert!(polled.await.is_pending());
        }
        assert_eq!(room.served.bodies.all.available_permits(), ALL_KIB_MAX - OWN_KIB_MAX);
        let body = r#"{"source":"a:x","destination":"b:y"}"#;
        let length = body.len().to_string();
        let headers = [("authorization", &other[..]), ("content-length", &length[..])];
        let answer = room.router.clone().call(Room::request("POST", "/api/v1/jobs", &headers, body.into())).await;
        let told = told(answer.unwrap()).await;
        assert!(told["detail"].as_str().unwrap().contains("knows no endpoint"), "{told}");
    });
}

#[test]
fn a_stream_ends_with_the_right_to_it() {
    run(async {
        let room = room();
        let token = room.token("a", "read");
        let mut body = room.ask("GET", "/api/v1/events", &[("authorization", &token)]).await.into_body();
        let mut next = async || std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context)).await;
        let first = next().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&first[..], b": connected\n\n");
        room.hub.remove_token(&room.admin(), "a").unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(60), next()).await;
        assert!(matches!(ended, Ok(None)), "it goes on");
    });
}

#[test]
fn one_holder_of_a_token_has_so_many_streams_and_gets_them_back() {
    run(async {
        let room = room();
        let token = room.token("a", "read");
        let mut open = Vec::new();
        for _ in 0..20 {
            let answer = room.ask("GET", "/api/v1/events", &[("authorization", &token)]).await;
            assert_eq!(answer.status(), StatusCode::OK);
            open.push(answer);
        }
        let answer = room.ask("GET", "/api/v1/events", &[("authorization", &token)]).await;
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(answer.headers().contains_key("retry-after"));
        drop(open);
        let again = async {
            while room.ask("GET", "/api/v1/events", &[("authorization", &token)]).await.status() != StatusCode::OK {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), again).await.unwrap();
    });
}
