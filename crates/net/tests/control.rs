//! Control streams over loopback: full duplex under load, bounded, and with an end that says why.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use net::{Connection, ControlEnd, ControlEvent, ControlOptions, ControlSender, SendError};

mod support;
use support::{connections, data_streams, pattern};

fn options() -> ControlOptions {
    ControlOptions { queued_bytes_max: 256 * 1024, idle_timeout: Duration::from_secs(20), ..Default::default() }
}

/// Runs a loop that collects what it receives and passes it on whenever it has grown.
fn collect(connection: Connection, options: ControlOptions) -> (ControlSender, mpsc::Receiver<Vec<u8>>, Loop) {
    let (sender, stream) = connection.into_control(options).unwrap();
    let (received, receiver) = mpsc::channel();
    let running = thread::spawn(move || {
        stream.run(|event| {
            if let ControlEvent::Received(bytes) = event {
                received.send(bytes.to_vec()).unwrap();
            }
            ControlFlow::Continue(())
        })
    });
    (sender, receiver, running)
}

type Loop = thread::JoinHandle<ControlEnd>;

#[test]
fn both_sides_flood_each_other_without_locking_up() {
    const MESSAGES: u64 = 400;
    const SENDERS: u64 = 2;
    const MESSAGE_BYTES: u64 = 64 * 1024;
    let (near, far) = connections();
    let sides: Vec<_> = [near, far]
        .into_iter()
        .map(|connection| {
            let (sender, stream) = connection.into_control(options()).unwrap();
            let open_ends = Arc::new(AtomicU64::new(SENDERS + 1));
            let finish = |sender: &ControlSender, open_ends: &AtomicU64| {
                if open_ends.fetch_sub(1, Ordering::SeqCst) == 1 {
                    sender.close_after_flush();
                }
            };
            let senders: Vec<_> = (0..SENDERS)
                .map(|_| {
                    let (sender, open_ends) = (sender.clone(), open_ends.clone());
                    thread::spawn(move || {
                        for message in 0..MESSAGES {
                            sender.send(vec![message as u8; MESSAGE_BYTES as usize]).unwrap();
                        }
                        finish(&sender, &open_ends);
                    })
                })
                .collect();
            let running = thread::spawn(move || {
                let mut received = 0;
                let end = stream.run(|event| {
                    if let ControlEvent::Received(bytes) = event {
                        received += bytes.len() as u64;
                        if received == SENDERS * MESSAGES * MESSAGE_BYTES {
                            finish(&sender, &open_ends);
                        }
                    }
                    ControlFlow::Continue(())
                });
                assert!(matches!(end, ControlEnd::Closed | ControlEnd::PeerClosed), "{end:?}");
                received
            });
            (senders, running)
        })
        .collect();
    for (senders, running) in sides {
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(running.join().unwrap(), SENDERS * MESSAGES * MESSAGE_BYTES);
    }
}

#[test]
fn messages_of_one_sender_arrive_in_order_and_whole() {
    let (near, far) = connections();
    let (sender, _, near) = collect(near, options());
    let (_, receiver, far) = collect(far, options());
    let bytes = pattern(3, 3_000_000);
    let mut rest = &bytes[..];
    for length in [0, 1, 7, 16_384, 16_385, 100_000, 1_000_000].into_iter().cycle() {
        let (message, tail) = rest.split_at(length.min(rest.len()));
        sender.send(message.to_vec()).unwrap();
        rest = tail;
        if rest.is_empty() {
            break;
        }
    }
    sender.close_after_flush();
    assert!(matches!(near.join().unwrap(), ControlEnd::Closed));
    assert!(matches!(far.join().unwrap(), ControlEnd::PeerClosed));
    assert!(receiver.iter().flatten().eq(bytes));
    assert_eq!(sender.send(vec![1]), Err(SendError::Closed));
}

#[test]
fn what_the_peer_queued_before_it_saw_the_close_still_arrives() {
    let (near, far) = connections();
    let (near_sender, receiver, near) = collect(near, options());
    let (far_sender, _, far) = collect(far, options());
    far_sender.send(pattern(4, 200_000)).unwrap();
    near_sender.close_after_flush();
    assert!(matches!(near.join().unwrap(), ControlEnd::Closed));
    assert!(matches!(far.join().unwrap(), ControlEnd::PeerClosed));
    assert!(receiver.iter().flatten().eq(pattern(4, 200_000)));
}

#[test]
fn a_sender_waits_for_room_and_the_loops_own_thread_is_refused() {
    let (near, _far) = connections();
    let options = ControlOptions { tick: Duration::from_millis(5), ..options() };
    let (sender, stream) = near.into_control(options).unwrap();
    // Nobody runs the loop: the first message fills the queue alone, the second has to wait.
    sender.send(vec![0; 1 << 20]).unwrap();
    assert_eq!(sender.queued_bytes(), 1 << 20);
    let waiting = {
        let sender = sender.clone();
        thread::spawn(move || sender.send(vec![0; 1]))
    };
    let end = stream.run(|event| match event {
        // The socket's buffers take some of it; the peer takes nothing.
        ControlEvent::Tick => match sender.send(vec![0; 1 << 20]) {
            Ok(()) => ControlFlow::Continue(()),
            Err(SendError::Full) => ControlFlow::Break(()),
            Err(SendError::Closed) => panic!("closed"),
        },
        ControlEvent::Received(_) => ControlFlow::Continue(()),
    });
    assert!(matches!(end, ControlEnd::Stopped), "{end:?}");
    // Either there was room in time or the end of the loop released it.
    assert!(waiting.join().unwrap() != Err(SendError::Full));
    assert_eq!(sender.send(vec![0]), Err(SendError::Closed));
}

#[test]
fn ticks_come_while_nothing_else_does() {
    let (near, _far) = connections();
    let options = ControlOptions { tick: Duration::from_millis(5), ..options() };
    let (_sender, stream) = near.into_control(options).unwrap();
    let mut ticks = 0;
    let end = stream.run(|_| {
        ticks += 1;
        if ticks == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(end, ControlEnd::Stopped));
}

#[test]
fn silence_ends_the_loop_and_pings_prevent_it() {
    let (near, far) = connections();
    let quiet = ControlOptions { idle_timeout: Duration::from_secs(1), ..options() };
    let pinging = ControlOptions { tick: Duration::from_millis(20), ..options() };
    let (sender, stream) = far.into_control(pinging).unwrap();
    let pinger = thread::spawn(move || {
        let mut pings = 0;
        stream.run(|event| {
            if matches!(event, ControlEvent::Tick) && pings < 30 {
                pings += 1;
                sender.send(vec![b'p']).unwrap();
            }
            ControlFlow::Continue(())
        })
    });
    let (_sender, pings, near) = collect(near, quiet);
    assert!(matches!(near.join().unwrap(), ControlEnd::TimedOut));
    assert_eq!(pings.iter().flatten().count(), 30);
    // The loop left without close_notify.
    assert!(matches!(pinger.join().unwrap(), ControlEnd::Truncated | ControlEnd::Io(_)));
}

#[test]
fn a_peer_that_reads_nothing_and_goes_on_sending_does_not_keep_a_stream_whose_end_was_asked_for() {
    let (near, far) = connections();
    let options = ControlOptions { queued_bytes_max: 64 << 20, end_timeout: Duration::from_millis(500), ..options() };
    let (sender, stream) = near.into_control(options).unwrap();
    // Far more than both sockets take of it.
    sender.send(vec![0; 64 << 20]).unwrap();
    let mut far = far.into_data();
    let talking = thread::spawn(move || {
        while far.send(&[b"x"]).is_ok() {
            thread::park_timeout(Duration::from_millis(100));
        }
    });
    sender.close_after_flush();
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(stream.run(|_| ControlFlow::Continue(()))));
    let end = end.recv_timeout(Duration::from_secs(10)).expect("it goes on for as long as the peer sends");
    assert!(matches!(end, ControlEnd::Unread), "{end:?}");
    assert_eq!(sender.send(vec![1]), Err(SendError::Closed));
    talking.join().unwrap();
}

#[test]
fn an_abort_ends_the_loop_from_another_thread() {
    let (near, far) = connections();
    let (sender, _, near) = collect(near, options());
    let (_, _, far) = collect(far, options());
    sender.abort();
    assert!(matches!(near.join().unwrap(), ControlEnd::Aborted));
    assert!(matches!(far.join().unwrap(), ControlEnd::Truncated));
    assert_eq!(sender.send(vec![1]), Err(SendError::Closed));
}

#[test]
fn a_handler_that_panics_releases_the_senders() {
    let (near, far) = connections();
    let (sender, stream) = near.into_control(options()).unwrap();
    let running = thread::spawn(move || stream.run(|_| panic!("a handler's own mistake")));
    let mut far = far.into_data();
    far.send(&[b"x"]).unwrap();
    assert!(running.join().is_err());
    assert_eq!(sender.send(vec![1]), Err(SendError::Closed));
}

#[test]
fn a_data_stream_goes_on_as_a_control_stream_with_what_it_had_received() {
    let (mut near, mut far) = data_streams();
    near.send(&[b"hello, then "]).unwrap();
    near.send(&[b"control"]).unwrap();
    near.close().unwrap();
    let mut hello = [0; 7];
    far.recv_exact(&mut hello).unwrap();
    let (_sender, stream) = far.into_control(options()).unwrap();
    let mut received = Vec::new();
    let end = stream.run(|event| {
        if let ControlEvent::Received(bytes) = event {
            received.extend_from_slice(bytes);
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(end, ControlEnd::PeerClosed), "{end:?}");
    assert_eq!(received, b"then control");
    assert_eq!(near.recv(&mut [0; 1]).unwrap(), 0);
}
