//! A listener that runs out of descriptors waits for some to be freed, without spinning. Alone in its process, because
//! it lowers the process's own limit.

use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use net::Listener;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_listener_without_descriptors_waits_without_spinning() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr()).unwrap();
    let spare = TcpStream::connect(listener.local_addr()).unwrap();
    let (accepted, is_accepted) = mpsc::channel();
    let limit = getrlimit(Resource::Nofile);
    // Descriptors are given out lowest first, so the limit is one above the highest in use.
    let highest = std::os::fd::AsRawFd::as_raw_fd(&spare) as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(highest + 1), ..limit }).unwrap();

    let accepting = thread::spawn(move || {
        let (tcp, _) = listener.accept().unwrap().unwrap();
        accepted.send(thread_cpu_time()).unwrap();
        tcp.shutdown(Shutdown::Both).unwrap();
    });
    assert!(is_accepted.recv_timeout(Duration::from_millis(500)).is_err(), "there was a descriptor left");
    drop(spare);
    let spent = is_accepted.recv().unwrap();
    assert!(spent < Duration::from_millis(100), "{spent:?}");
    accepting.join().unwrap();
    setrlimit(Resource::Nofile, limit).unwrap();
    drop(client);
}

fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
