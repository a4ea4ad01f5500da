//! TCP sockets as the kernel shows them: readiness, buffer limits, congestion control, pacing and TCP_INFO.
//!
//! No buffer size is ever set here: a size set by hand switches the kernel's autotuning off, and lost in every
//! measurement. What the kernel would grant at most is read instead.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Error, ErrorKind};

/// The kernel's structure has 248 bytes in Linux 6.7 and grows at its end; what is beyond this is not read.
const TCP_INFO_BYTES_MAX: usize = 512;

/// A sample of the kernel's TCP_INFO. A field that this kernel does not know is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Timeouts since the last acknowledgement of something sent.
    pub retransmits: u8,
    /// Probes of a closed window, or of an idle connection, that nothing has answered so far.
    pub probes: u8,
    pub rtt_us: u32,
    pub rtt_var_us: u32,
    /// The kernel's windowed minimum; 0 before the first sample.
    pub rtt_us_min: u32,
    pub cwnd_segments: u32,
    pub ssthresh_segments: u32,
    pub mss_bytes: u32,
    pub unacked_segments: u32,
    pub lost_segments: u32,
    pub retransmitted_segments_total: u32,
    pub reordering_segments: u32,
    pub segments_sent: u32,
    pub segments_received: u32,
    /// Since payload came last.
    pub last_data_received_ms: u32,
    /// Since an acknowledgement came last.
    pub last_ack_received_ms: u32,
    pub delivery_rate_bytes_per_second: u64,
    /// All ones if pacing does not limit.
    pub pacing_rate_bytes_per_second: u64,
    /// Whether the delivery rate was limited by the application rather than by the path.
    pub is_application_limited: bool,
    /// Time with data to send or to be acknowledged.
    pub busy_us: u64,
    /// Part of `busy_us` in which the peer's receive window was the limit.
    pub rwnd_limited_us: u64,
    /// Part of `busy_us` in which our send buffer was the limit.
    pub sndbuf_limited_us: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    /// Including retransmissions.
    pub bytes_sent: u64,
    pub bytes_retransmitted: u64,
    /// In the send buffer, never sent so far.
    pub not_sent_bytes: u32,
    /// The peer's receive window as it last told us.
    pub send_window_bytes: u32,
    pub receive_window_bytes: u32,
    /// What receive-buffer autotuning believes the round trip to be.
    pub receive_rtt_us: u32,
    pub receive_space_bytes: u32,
}

impl TcpInfo {
    /// Asks the kernel. About a microsecond.
    pub fn sample(socket: &impl AsFd) -> io::Result<Self> {
        let mut bytes = [0u8; TCP_INFO_BYTES_MAX];
        let mut bytes_len = bytes.len() as libc::socklen_t;
        // SAFETY: the pointer and length describe `bytes`, which outlives the call; the kernel writes at most
        // `bytes_len` bytes and stores in it how many it wrote.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &mut bytes_len,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self::parse(&bytes))
    }

    /// Offsets are those of `struct tcp_info` in the kernel's user API, which only ever grows at its end.
    fn parse(bytes: &[u8; TCP_INFO_BYTES_MAX]) -> Self {
        let u32_at = |offset: usize| u32::from_ne_bytes(bytes[offset..offset + 4].try_into().expect("4 bytes"));
        let u64_at = |offset: usize| u64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("8 bytes"));
        Self {
            retransmits: bytes[2],
            probes: bytes[3],
            is_application_limited: bytes[7] & 1 == 1,
            mss_bytes: u32_at(16),
            unacked_segments: u32_at(24),
            lost_segments: u32_at(32),
            last_data_received_ms: u32_at(52),
            last_ack_received_ms: u32_at(56),
            rtt_us: u32_at(68),
            rtt_var_us: u32_at(72),
            ssthresh_segments: u32_at(76),
            cwnd_segments: u32_at(80),
            reordering_segments: u32_at(88),
            receive_rtt_us: u32_at(92),
            receive_space_bytes: u32_at(96),
            retransmitted_segments_total: u32_at(100),
            pacing_rate_bytes_per_second: u64_at(104),
            bytes_acked: u64_at(120),
            bytes_received: u64_at(128),
            segments_sent: u32_at(136),
            segments_received: u32_at(140),
            not_sent_bytes: u32_at(144),
            rtt_us_min: Some(u32_at(148)).filter(|rtt| *rtt != u32::MAX).unwrap_or(0),
            delivery_rate_bytes_per_second: u64_at(160),
            busy_us: u64_at(168),
            rwnd_limited_us: u64_at(176),
            sndbuf_limited_us: u64_at(184),
            bytes_sent: u64_at(200),
            bytes_retransmitted: u64_at(208),
            send_window_bytes: u32_at(228),
            receive_window_bytes: u32_at(232),
        }
    }
}

/// The ceiling that send-buffer autotuning may reach in this network namespace (`net.ipv4.tcp_wmem`, third value).
pub fn granted_send_buffer_bytes_max() -> io::Result<u64> {
    third_value("/proc/sys/net/ipv4/tcp_wmem")
}

/// The congestion control in use, by the kernel's name.
pub fn congestion(socket: &impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(socket)?)
}

/// Selects the congestion control; the error names those that this process could select.
pub fn set_congestion(socket: &impl AsFd, name: &str) -> Result<(), Error> {
    const OPERATION: &str = "set congestion control";
    let Err(e) = sockopt::set_tcp_congestion(socket, name) else { return Ok(()) };
    let list = match e {
        // The kernel has it, but only for a privileged process.
        rustix::io::Errno::PERM => congestion_names("/proc/sys/net/ipv4/tcp_allowed_congestion_control"),
        rustix::io::Errno::NOENT | rustix::io::Errno::INVAL => congestion_available(),
        _ => return Err(Error::from_io(OPERATION, name, e.into())),
    };
    let available = list.map_err(|e| Error::from_io("list", "congestion controls", e))?;
    let kind = ErrorKind::CongestionUnavailable { requested: name.to_owned(), available };
    Err(Error::caused(kind, OPERATION, name, io::Error::from(e)))
}

/// Whether every process of this host may select it. What a peer asks for must not use what this process may do beyond
/// that: for a privileged one the kernel loads a module of the name.
pub fn check_congestion(name: &str) -> Result<(), Error> {
    const OPERATION: &str = "set congestion control";
    let list = congestion_names("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let available = list.map_err(|e| Error::from_io("list", "congestion controls", e))?;
    if available.split(' ').any(|allowed| allowed == name) {
        return Ok(());
    }
    let kind = ErrorKind::CongestionUnavailable { requested: name.to_owned(), available };
    Err(Error::caused(kind, OPERATION, name, io::Error::from(rustix::io::Errno::PERM)))
}

/// Whether this process may have streams that use one congestion control use another one, and come back; why not, otherwise. It is tried
/// on a socket that nobody uses, and nothing is loaded for it.
pub fn check_change(own: &str, other: &str) -> Result<(), String> {
    if !congestion_available().is_ok_and(|names| names.split(' ').any(|name| name == other)) {
        return Err(format!("this kernel has not loaded {other} (modprobe tcp_{other})"));
    }
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
    let Ok(socket) = socket else { return Err(format!("{other} could not be tried")) };
    match [other, own].into_iter().find(|name| sockopt::set_tcp_congestion(&socket, name).is_err()) {
        Some(name) => Err(format!("this process may not select {name} (net.ipv4.tcp_allowed_congestion_control)")),
        None => Ok(()),
    }
}

/// The congestion controls that the kernel has loaded, separated by blanks.
pub fn congestion_available() -> io::Result<String> {
    congestion_names("/proc/sys/net/ipv4/tcp_available_congestion_control")
}

/// Paces what the socket sends to at most this rate (the kernel spreads the segments evenly).
pub fn set_max_pacing_rate(socket: &impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    // SAFETY: the pointer and length describe `bytes_per_second`, which outlives the call; the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            mem::size_of::<u64>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The longest that the kernel waits before it sends again what nothing answers: it doubles its patience each time, so that a path
/// that was away for a while stays unused for as long again. With the 15 times that a kernel tries by default a connection lasts
/// as long as nobody gives it up.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(3);
/// The same while little was tried in vain. 15 of these would be too few; the kernel takes no less.
const BACKOFF_MAX_EAGER: Duration = Duration::from_secs(1);
/// Tries in vain after which it is no longer little: some 7 s of silence.
const EAGER_TRIES: u8 = 8;

/// How long the kernel may wait before it looks again for a path on which it has looked in vain so often. The bound holds for the
/// first look too: where an answer may take that long without any loss, it is the longer one.
pub(crate) fn backoff_max(info: &TcpInfo) -> Duration {
    let patience = Duration::from_micros(u64::from(info.rtt_us) + 4 * u64::from(info.rtt_var_us));
    let is_eager = patience * 2 <= BACKOFF_MAX_EAGER && info.retransmits.max(info.probes) < EAGER_TRIES;
    if is_eager { BACKOFF_MAX_EAGER } else { BACKOFF_MAX }
}

/// Has the kernel look for a path that is away at least that often. False where it cannot: before Linux 6.15.
pub(crate) fn limit_backoff(socket: &impl AsFd, longest: Duration) -> bool {
    /// Of `linux/tcp.h`, for which `libc` has no name yet.
    const TCP_RTO_MAX_MS: libc::c_int = 44;
    let milliseconds = longest.as_millis() as libc::c_int;
    // SAFETY: the pointer and length describe `milliseconds`, which outlives the call; the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const milliseconds).cast(),
            mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    result == 0
}

/// Waits until the socket is ready for one of `events`, or failed; `TimedOut` once `deadline` has passed.
pub(crate) fn wait_until(socket: &impl AsFd, events: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let timeout = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return Err(io::ErrorKind::TimedOut.into()),
            timeout => timeout.map(timespec),
        };
        match rustix::event::poll(&mut [PollFd::new(socket, events)], timeout.as_ref()) {
            // The deadline decides whether this was all; an interrupted or early wait goes on.
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs().min(i64::MAX as u64) as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

fn third_value(path: &str) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let value = text.split_whitespace().nth(2).and_then(|value| value.parse().ok());
    value.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path} does not hold three numbers")))
}

fn congestion_names(path: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn tcp_info_counts_the_bytes_that_travelled() {
        let (mut near, mut far) = pair();
        near.write_all(&[7; 100_000]).unwrap();
        far.read_exact(&mut [0; 100_000]).unwrap();
        far.write_all(&[1]).unwrap();
        near.read_exact(&mut [0]).unwrap();
        let info = TcpInfo::sample(&near).unwrap();
        assert!(info.mss_bytes > 500 && info.cwnd_segments > 0, "{info:?}");
        assert_eq!((info.bytes_sent, info.bytes_received), (100_000, 1), "{info:?}");
        assert_eq!(TcpInfo::sample(&far).unwrap().bytes_received, 100_000);
        assert!(info.rtt_us > 0 && info.rtt_us_min <= info.rtt_us + info.rtt_var_us * 8, "{info:?}");
    }

    #[test]
    fn a_kernel_that_can_looks_often_for_a_path_that_is_away() {
        let (near, _far) = pair();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let numbers: Vec<u32> = release.split(['.', '-']).take(2).filter_map(|number| number.parse().ok()).collect();
        let info = |retransmits, rtt_us| TcpInfo { retransmits, rtt_us, ..TcpInfo::default() };
        let all = [info(0, 74_000), info(EAGER_TRIES, 74_000), info(0, 700_000)].map(|info| backoff_max(&info));
        assert_eq!(all, [BACKOFF_MAX_EAGER, BACKOFF_MAX, BACKOFF_MAX]);
        for longest in all {
            assert!(limit_backoff(&near, longest) || numbers < vec![6, 15], "Linux {release}");
        }
    }

    #[test]
    fn an_unknown_congestion_control_is_refused_with_the_available_ones() {
        let (near, _far) = pair();
        let current = congestion(&near).unwrap();
        set_congestion(&near, &current).unwrap();
        let error = set_congestion(&near, "no-such-one").unwrap_err();
        assert!(error.to_string().contains(&current), "{error}");
    }

    #[test]
    fn limits_of_this_namespace_are_readable() {
        assert!(granted_send_buffer_bytes_max().unwrap() >= 4096);
        let (near, _far) = pair();
        set_max_pacing_rate(&near, 5_000_000_000).unwrap();
    }

    #[test]
    fn waiting_ends_at_the_deadline() {
        let (near, _far) = pair();
        let deadline = Instant::now() + Duration::from_millis(20);
        let error = wait_until(&near, PollFlags::IN, Some(deadline)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(Instant::now() >= deadline);
    }
}
