//! Reviews of rights by an endpoint that has no descriptor left. A process of its own: its limit is everybody's in it.

use daemon::{ServeOptions, Served};
use model::SessionId;
use net::{DataStream, DialOptions, Identity};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use wire::frame::{FrameHeader, HEADER_BYTES};
use wire::handshake::feature;
use wire::message::{self, Hello};
use wire::{CloseCode, Message};

/// Less than the 40 s after which an endpoint gives up a client that says nothing.
const PATIENCE: Duration = Duration::from_secs(30);

fn hear(stream: &mut DataStream) -> Option<Message> {
    let mut head = [0; HEADER_BYTES];
    stream.recv_exact(&mut head).ok()?;
    let mut body = vec![0; FrameHeader::decode(&head).ok()?.body_bytes as usize];
    stream.recv_exact(&mut body).ok()?;
    message::decode(&body).unwrap()
}

fn session(served: &Served, identity: &Identity, credential: &[u8]) -> DataStream {
    let dial = DialOptions::new(identity, served.pin()).unwrap();
    let mut control = net::dial(&served.local_addr().to_string(), &dial).unwrap().into_data();
    control.set_deadline(Some(Instant::now() + PATIENCE));
    let (session, credential) = (SessionId(net::random_bytes()).0.to_vec(), credential.to_vec());
    let hello =
        Hello { version_min: 1, version_max: 1, features: feature::ALL, session, credential, ..Hello::default() };
    control.send(&[&message::encode(hello)]).unwrap();
    assert!(matches!(hear(&mut control), Some(Message::Welcome(_))));
    control
}

#[test]
fn an_endpoint_without_descriptors_ends_sessions_whose_rights_it_cannot_look_up() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    let mut options = ServeOptions::new("127.0.0.1:0", dir.path().join("root"), dir.path().join("state"));
    options.name = Some("lab".into());
    let served = Served::start(options).unwrap();
    let identity = Identity::generate().unwrap();
    let mut control = session(&served, &identity, &served.ticket().credential[..]);
    let limit = getrlimit(Resource::Nofile);
    // None is free below it. Those above stay open.
    let lowest_free = fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(lowest_free), maximum: limit.maximum }).unwrap();
    assert_eq!(fs::File::open("/dev/null").unwrap_err().raw_os_error(), Some(24), "EMFILE");
    let since = Instant::now();
    let close = loop {
        match hear(&mut control) {
            Some(Message::Close(close)) => break close,
            Some(_) => {}
            None => panic!("the session ended without a word, or not at all"),
        }
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(CloseCode::from_number(close.code), CloseCode::Internal);
    assert!(close.text.contains("could not look up this client's rights"), "{}", close.text);
    // A moment without descriptors ends nothing.
    assert!(since.elapsed() > Duration::from_secs(4), "{:?}", since.elapsed());
    drop(control);
    drop(session(&served, &identity, b""));
    served.shut_down(PATIENCE);
}
