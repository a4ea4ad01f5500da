//! The host that lists the source of a copy by several hosts dies in the middle of its listing: what it had told of goes
//! on in parts, and the rest is copied by one of the others.

use crate::bed::{Bed, Server, contents, noise, until};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Their names alone are four times as much as is heard of the listing. Nothing else over that way comes near.
const FILES: usize = 6000;
const NAME_CHARS: usize = 100;
const HEARD_BYTES: usize = 150 << 10;

/// The way of clients to an endpoint, which ends for good once so much has come back over one connection.
struct Way {
    address: String,
    leads_to: Arc<OnceLock<String>>,
    is_over: Arc<AtomicBool>,
}

impl Way {
    fn new() -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (leads_to, is_over) = (Arc::<OnceLock<String>>::default(), Arc::<AtomicBool>::default());
        let way = Way { address, leads_to: leads_to.clone(), is_over: is_over.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // Closed at once, as by a host whose program has ended.
                if is_over.load(Relaxed) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(leads_to.get().unwrap()) else { continue };
                let (back, there) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || pass_on(client, there, &AtomicBool::default(), usize::MAX));
                let is_over = is_over.clone();
                std::thread::spawn(move || pass_on(server, back, &is_over, HEARD_BYTES));
            }
        });
        way
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_over: &AtomicBool, bytes_max: usize) {
    let (mut left, mut buffer) = (bytes_max, vec![0; 16 << 10]);
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        left = left.saturating_sub(read);
        if left == 0 {
            is_over.store(true, Relaxed);
            break;
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn serve(bed: &Bed, name: &str, root: &str, more: &[&str]) -> Server {
    std::fs::create_dir_all(bed.path(root)).unwrap();
    let ticket = format!("ticket-{name}");
    let args = ["serve", "--listen", "127.0.0.1:0", "--root", root, "--name", name, "--ticket-file", &ticket];
    bed.serve_with(bed.command(name, &[&args[..], more].concat()))
}

#[test]
fn what_a_host_had_not_listed_when_it_died_is_copied_all_the_same() {
    let (bed, way) = (Bed::new(), Way::new());
    let mut lists = serve(&bed, "a1", "from", &["--advertise", &way.address]);
    way.leads_to.set(lists.address.clone()).unwrap();
    let _others = [serve(&bed, "a2", "from", &[]), serve(&bed, "a3", "from", &[]), serve(&bed, "b1", "to", &[])];
    for name in ["a1", "a2", "a3", "b1"] {
        bed.run(&["endpoint", "add", name, "--ticket-file", &format!("ticket-{name}")]).succeeded();
    }
    for at in 0..FILES {
        bed.write(&format!("from/x/d{}/f{at:0NAME_CHARS$}", at % 7), &noise(at % 999, at as u64));
    }
    let child = bed.start(&["cp", "--json", "--hosts", "a2,a3", "a1:x/", "b1:y/"]);
    until("a part of the listing to be heard", || way.is_over.load(Relaxed));
    lists.kill();
    let ran = bed.wait(child).succeeded();
    assert!(ran.stderr.contains("one host copies what was not listed"), "{}", ran.stderr);
    assert_eq!(contents(&bed.path("from/x")), contents(&bed.path("to/y")));
    assert_eq!(ran.done()["files"]["failed"], 0, "{}", ran.stderr);
}
