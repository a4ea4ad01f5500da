//! Whole runs over loopback, and what strangers and wrong requests get.

use super::counters::Counters;
use super::measure::Sample;
use super::protocol::{FromClient, FromServer, GREETING_BYTES, Greeting, HELLO_BYTES, Hello};
use super::*;
use crate::error::Kind;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

const LIMITS: Limits = Limits { sessions_of_peer: 4, lanes: 32, strangers: 4, ..Limits::FOR_STRANGERS };

/// Serves while `work` runs with its address; what was served comes out.
fn with_server(work: impl FnOnce(&str)) -> Vec<Served> {
    let server = Server::bind("127.0.0.1:0", LIMITS).unwrap();
    let (sender, receiver) = channel();
    thread::scope(|scope| {
        struct Stop(net::Stopper);
        impl Drop for Stop {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let _stop = Stop(server.stopper());
        let serving = &server;
        scope.spawn(move || serving.serve(|served| sender.send(served).unwrap()).unwrap());
        work(&server.local_addr().to_string());
    });
    receiver.iter().collect()
}

fn short() -> Load {
    Load { duration: Duration::from_millis(60), interval: Duration::from_millis(20), ..Load::default() }
}

fn go(address: &str, load: &Load) -> crate::error::Result<Outcome> {
    run(address, load, &AtomicBool::new(false), &mut |_| ())
}

#[test]
fn bytes_flow_in_every_direction_clear_and_sealed() {
    let served = with_server(|address| {
        for is_encrypted in [false, true] {
            for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
                let load = Load { streams: 2, direction, is_encrypted, omitted: Duration::from_millis(20), ..short() };
                let outcome = go(address, &load).unwrap();
                assert_eq!(outcome.streams.len() as u32, load.lanes());
                assert_eq!(outcome.intervals.len(), 4);
                assert_eq!(outcome.intervals.iter().filter(|interval| interval.is_omitted).count(), 1);
                for totals in &outcome.totals {
                    assert!(totals.bytes > 0 && totals.rtt_us_min > 0, "{load:?} {totals:?}");
                }
                let sum: u64 = outcome.totals.iter().map(|totals| totals.bytes).sum();
                assert_eq!(sum, outcome.streams.iter().map(|stream| stream.bytes).sum::<u64>());
            }
        }
    });
    assert!(served.len() == 6 && served.iter().all(|served| served.problem.is_empty()), "{served:?}");
}

#[test]
fn runs_at_the_same_time_share_one_server() {
    with_server(|address| {
        thread::scope(|scope| {
            let runs: Vec<_> = (0..3).map(|_| scope.spawn(|| go(address, &short()))).collect();
            for run in runs {
                assert!(run.join().unwrap().unwrap().totals[0].bytes > 0);
            }
        });
    });
}

#[test]
fn a_server_refuses_what_it_cannot_serve_and_serves_the_next() {
    with_server(|address| {
        let error = go(address, &Load { streams: 33, ..short() }).unwrap_err();
        assert!(error.kind == Kind::Refused && error.chain().contains("32 streams are free"), "{}", error.chain());
        let unknown = Load { congestion: Some("no-such-one".into()), ..short() };
        let error = go(address, &unknown).unwrap_err();
        assert!(error.kind == Kind::Usage && error.chain().contains("available"), "{}", error.chain());
        assert!(go(address, &short()).is_ok());
    });
}

#[test]
fn nobody_holds_more_than_its_share_of_the_places_or_holds_one_for_long() {
    with_server(|address| {
        let greet = || {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(&Hello::Control.encode()).unwrap();
            let mut greeting = [0; GREETING_BYTES];
            socket.read_exact(&mut greeting).unwrap();
            (socket, Greeting::decode(&greeting))
        };
        let held: Vec<_> = (0..LIMITS.sessions_of_peer).map(|_| greet()).collect();
        assert!(held.iter().all(|(_, greeting)| *greeting == Ok(Greeting::Welcome)));
        assert_eq!(greet().1, Ok(Greeting::Busy));
        drop(held);
        while go(address, &short()).is_err() {
            thread::yield_now();
        }
        let too_long = Load { duration: LIMITS.time_max + Duration::from_secs(1), ..Load::default() };
        let error = go(address, &too_long).unwrap_err();
        assert!(error.kind == Kind::Refused && error.chain().contains("at most 7200 s"), "{}", error.chain());
    });
}

#[test]
fn a_load_out_of_bounds_is_refused_by_both_ends() {
    let long = Load { duration: Duration::from_secs(1 << 40), ..short() };
    let wrong = [
        Load { streams: 0, ..short() },
        Load { streams: STREAMS_MAX + 1, ..short() },
        Load { duration: Duration::ZERO, ..short() },
        Load { omitted: Duration::MAX, ..short() },
        Load { interval: Duration::ZERO, ..short() },
        Load { duration: Duration::from_secs(86_400), interval: Duration::from_millis(10), ..short() },
        Load { block_bytes: 0, ..short() },
        Load { block_bytes: u32::MAX, ..short() },
        Load { congestion: Some("with a blank".into()), ..short() },
        Load { pacing_bits_per_second: Some(1), ..short() },
        long,
    ];
    let served = with_server(|address| {
        for load in &wrong {
            assert_eq!(go(address, load).unwrap_err().kind, Kind::Usage, "{load:?}");
            let stop = AtomicBool::new(false);
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(&Hello::Control.encode()).unwrap();
            socket.read_exact(&mut [0; GREETING_BYTES]).unwrap();
            let control = control::Control::new(socket, &stop).unwrap();
            control.send(&FromClient::Request(load.clone())).unwrap();
            let answer: FromServer = control.receive(std::time::Instant::now() + Duration::from_secs(20)).unwrap();
            assert!(matches!(answer, FromServer::Refused { .. }), "{answer:?}");
        }
    });
    assert!(served.iter().all(|served| served.load.is_none()), "{served:?}");
}

#[test]
fn strangers_get_a_greeting_that_tells_the_version_and_the_end() {
    with_server(|address| {
        for said in [&b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"[..], &[0x16; 400]] {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(said).unwrap();
            let mut answer = Vec::new();
            // What was not read makes the close a reset.
            let _ = socket.read_to_end(&mut answer);
            if let Ok(greeting) = <[u8; GREETING_BYTES]>::try_from(&answer[..]) {
                assert_eq!(Greeting::decode(&greeting), Ok(Greeting::NotUnderstood { version: protocol::VERSION }));
            }
        }
        assert!(go(address, &short()).is_ok());
    });
}

#[test]
fn a_data_connection_without_a_session_is_closed() {
    with_server(|address| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(&Hello::Data { lane: 0, token: [7; 16] }.encode()).unwrap();
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn a_client_that_leaves_frees_its_streams() {
    with_server(|address| {
        let load = Load { streams: 32, duration: Duration::from_secs(60), ..short() };
        for _ in 0..3 {
            let ended = loop {
                let stop = AtomicBool::new(false);
                let ended = run(address, &load, &stop, &mut |event| {
                    if let Event::Interval(_) = event {
                        stop.store(true, std::sync::atomic::Ordering::Relaxed);
                    }
                });
                match ended {
                    // The server learns a little later that the one before has left.
                    Err(error) if error.kind == Kind::Refused => thread::yield_now(),
                    ended => break ended,
                }
            };
            assert_eq!(ended.unwrap_err().kind, Kind::Cancelled);
        }
    });
}

#[test]
fn a_client_tells_what_is_wrong_with_the_other_side() {
    let error = go("127.0.0.1:1", &short()).unwrap_err();
    assert_eq!((error.kind, error.chain().contains("nothing listens there")), (Kind::Unreachable, true));
    for (said, heard) in [
        (&b"SSH-2.0-OpenSSH_9.2"[..], "something else"),
        (&b""[..], "without a greeting"),
        (&b"thwgload\x00\x09\x00\x01"[..], "version 9"),
        (&b"thwgload\x00\x01\x00\x02"[..], "as many clients as it may"),
        (&b"thwgload\x00\x01\x00\x00\xff\xff\xff\xff"[..], "a message of"),
        (&b"thwgload\x00\x01\x00\x00\x00\x00\x00\x02{}"[..], "talk to"),
        (&b"thwgload\x00\x01\x00\x00\x00\x00\x00\x10{\"\\u001b[2J\":{}}"[..], "\\x1b[2J"),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let mut socket = listener.accept().unwrap().0;
            socket.read_exact(&mut [0; 32]).unwrap();
            socket.write_all(said).unwrap();
            // The client may have heard enough and be gone; if not, until it goes.
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let error = go(&address, &short()).unwrap_err();
        assert!(error.chain().contains(heard), "{heard}: {}", error.chain());
        server.join().unwrap();
    }
}

/// Takes two streams and tells samples of them, each as `tell` has it by its number.
fn lie(listener: &TcpListener, tell: fn(u32) -> Counters) {
    let (stop, deadline) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(20));
    let mut socket = listener.accept().unwrap().0;
    socket.read_exact(&mut [0; HELLO_BYTES]).unwrap();
    socket.write_all(&Greeting::Welcome.encode()).unwrap();
    let control = control::Control::new(socket, &stop).unwrap();
    control.receive::<FromClient>(deadline).unwrap();
    control.send(&FromServer::Accepted { token: "07".repeat(16), pin: None }).unwrap();
    let _lanes = [(); 2].map(|()| listener.accept().unwrap());
    control.send(&FromServer::Ready { kernel: String::new(), congestion: String::new() }).unwrap();
    control.receive::<FromClient>(deadline).unwrap();
    control.send(&FromServer::Started).unwrap();
    for number in 0..2 {
        let sample = Sample { number, lanes: vec![tell(number); 2], ..Sample::default() };
        control.send(&FromServer::Sample(sample)).unwrap();
    }
    // Until the client has heard enough.
    let _ = control.receive::<FromClient>(deadline);
}

#[test]
fn a_server_that_counts_what_no_stream_carries_is_told_as_one_that_does() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let tell = |number: u32| Counters { bytes: if number == 0 { 0 } else { u64::MAX }, ..Counters::default() };
    let server = thread::spawn(move || lie(&listener, tell));
    let error = go(&address, &Load { streams: 2, ..short() }).unwrap_err();
    assert!(error.kind == Kind::Incompatible && error.chain().contains("than a stream can carry"), "{}", error.chain());
    server.join().unwrap();
}

#[test]
fn moments_are_the_ends_of_intervals_and_of_the_omitted_part() {
    let ms = Duration::from_millis;
    let load = Load { duration: ms(250), omitted: ms(150), interval: ms(100), ..Load::default() };
    let moments: Vec<_> = load.moments().iter().map(|moment| (moment.at.as_millis(), moment.is_counted)).collect();
    assert_eq!(moments, [(0, false), (100, false), (150, false), (250, true), (350, true), (400, true)]);
}
