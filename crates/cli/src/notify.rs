//! Telling systemd how an endpoint is: ready, alive, stopping (sd_notify(3): datagrams to the socket that it names).
//!
//! A sign of life says that the endpoint still looks at the rights of those who are here, not only that the process runs: one
//! that does not is restarted. Without such a socket nothing is sent. What is told is advice: a message that cannot be sent changes nothing.
//! The socket is connected before the endpoint gives up the rest of the file system.

use crate::interrupt::Interrupt;
use daemon::Pulse;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the signal is looked for where nobody wants signs of life.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);
const WATCHDOG_INTERVAL_MIN: Duration = Duration::from_millis(100);

pub struct Notify {
    socket: Option<UnixDatagram>,
    /// How often systemd wants a sign of life: twice in the time it allows.
    watchdog: Option<Duration>,
}

impl Notify {
    pub fn from_env() -> Notify {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(name.as_bytes()));
        let allowed_us = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse::<u64>().ok());
        let is_for_us = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let watchdog =
            allowed_us.filter(|_| is_for_us).map(|us| Duration::from_micros(us / 2).max(WATCHDOG_INTERVAL_MIN));
        Notify { socket, watchdog }
    }

    /// Tells that the endpoint answers, then watches until it is to stop, which gets `patience`. The thread ends when it
    /// has told that, too.
    pub fn ready(
        self,
        status: &str,
        pulse: Pulse,
        interrupt: &Interrupt,
        patience: Duration,
    ) -> Option<JoinHandle<()>> {
        self.socket.as_ref()?;
        self.send(&format!("READY=1\nSTATUS={status}"));
        let interrupt = interrupt.clone();
        let watch = move || {
            while !interrupt.wait(self.watchdog.unwrap_or(IDLE_INTERVAL)) {
                if self.watchdog.is_some() && pulse.is_there() {
                    self.send("WATCHDOG=1");
                }
            }
            let patience_us = (patience + Duration::from_secs(5)).as_micros();
            self.send(&format!("STOPPING=1\nSTATUS=waiting for transfers\nEXTEND_TIMEOUT_USEC={patience_us}"));
        };
        // Without the thread systemd learns of the end when it comes.
        std::thread::Builder::new().name("notify".into()).spawn(watch).ok()
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(text.as_bytes());
        }
    }
}

/// A path, or with `@` in front a name in the abstract namespace.
fn connect(name: &[u8]) -> Option<UnixDatagram> {
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name).ok()?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)).ok()?,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}
