//! Conversations with servers that are told what to answer.

use super::*;
use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;

/// What a server is told, and what it answers. Where it answers that a transfer begins, it is told `DATA` next.
type Answer = fn(&str) -> &'static str;

/// Lets everybody in, and computes checksums.
pub fn tame(command: &str) -> &'static str {
    match command.split(' ').next() {
        Some("USER") => "230 in",
        Some("FEAT") => "211-Features\r\n CKSM ADLER32:10;\r\n211 End",
        _ => "200 fine",
    }
}

/// A server at the other end of a pair of sockets.
pub fn server(answer: Answer) -> std::result::Result<Arc<Server>, OpenError> {
    let dial: Box<DialWires> = Box::new(move || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut output = theirs.try_clone().unwrap();
            output.write_all(b"220 ready\r\n").unwrap();
            for command in BufReader::new(theirs).lines().map_while(std::result::Result::ok) {
                let mut said = answer(&command);
                while output.write_all(format!("{said}\r\n").as_bytes()).is_ok() && said.starts_with("150") {
                    said = answer("DATA");
                }
            }
        });
        let output = Box::new(ours.try_clone().unwrap());
        Ok(Wires { input: Box::new(ours), output, why: None, peer: Some(Ipv4Addr::LOCALHOST.into()), here: None })
    });
    let account = Account { user: "me".to_owned(), password: "hunter2".to_owned() };
    Server::connect("ftp://far".to_owned(), account, Reach::default(), dial)
}

/// A place for data connections, and what a server answers to EPSV.
pub fn data() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("229 there (|||{port}|)"))
}

/// The only conversation: whoever wants another one is told so at once.
pub fn crowd(server: &mut Arc<Server>) -> Lease {
    Arc::get_mut(server).unwrap().turn_patience = Duration::ZERO;
    server.idle.lock().unwrap().most = 1;
    server.lease().unwrap()
}

pub fn stirs(server: &Server) -> u64 {
    server.stirs.load(Relaxed)
}

#[test]
fn a_server_that_is_gone_is_noticed_however_long_it_may_take() {
    let (listener, _) = data();
    let stream = super::dial(&listener.local_addr().unwrap()).unwrap();
    assert!(sockopt::socket_keepalive(&stream).unwrap());
    let probed = sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
    assert!(sockopt::tcp_keepidle(&stream).unwrap() + probed < PATIENCE);
}

#[test]
fn a_wrong_password_is_not_taken_for_a_want_of_certificates() {
    let wrong: Answer = |command| match &command[..4] {
        "USER" => "331 who?",
        _ => "530 Login authentication failed (GSI is not asked for)",
    };
    let certificates: Answer = |_| "530 authenticate by GSI first";
    let required: Answer = |_| "530 Authentication required";
    let wrapped: Answer = |_| "530 Command must be wrapped in MIC, ENC or CONF";
    let tls: Answer = |_| "530 use AUTH TLS, as all logging in does";
    let answers = [(wrong, false), (certificates, true), (required, true), (wrapped, true), (tls, false)];
    for (answer, wants_gsi) in answers {
        let Err(OpenError::Refused { why, text, .. }) = server(answer) else { panic!("it let me in") };
        assert_eq!((why, text.contains("asks for GSI")), (Refused::Keys, wants_gsi), "{text}");
        assert!(wants_gsi || text.contains("does not let me in"), "{text}");
    }
}

#[test]
fn who_has_no_turn_while_nothing_moves_is_told_so_and_not_of_a_loss() {
    let mut server = server(tame).ok().unwrap();
    let lease = crowd(&mut server);
    let Err(Fault::Crowded(why)) = server.lease() else { panic!("there was a turn") };
    assert!(why.contains("takes only 1 connections at once"), "{why}");
    drop(lease);
    server.lease().unwrap();
}

#[test]
fn who_has_a_conversation_moves_on_when_it_says_so_and_while_the_server_sums_up() {
    let server = server(tame).ok().unwrap();
    let before = stirs(&server);
    assert!(!server.moves_on(before));
    server.summing.store(1, Relaxed);
    assert!(server.moves_on(before));
    server.summing.store(0, Relaxed);
    server.stir();
    assert!(server.moves_on(before));
}

#[test]
fn a_command_that_cannot_be_said_is_refused_alone() {
    let server = server(tame).ok().unwrap();
    let command = |at: usize| if at == 5 { b"NOOP a\nb".to_vec() } else { b"NOOP".to_vec() };
    let commands: Vec<_> = (0..9).map(command).collect();
    let replies = server.lease().unwrap().ask_all(&commands);
    let is_refused: Vec<_> = replies.iter().map(|reply| matches!(reply, Err(Fault::Name(_)))).collect();
    assert_eq!(is_refused, (0..9).map(|at| at == 5).collect::<Vec<_>>());
    assert_eq!(replies.iter().flatten().count(), 8);
}

#[test]
fn a_trial_that_failed_lowers_the_number_of_conversations_by_none() {
    // Whichever side is to connect.
    type Trial = fn(&Arc<Server>) -> Result<Lease>;
    let trials: [Trial; 2] = [Server::lease_called, |server| server.lease_extended(1)];
    for trial in trials {
        let server = server(|command| match command {
            "MODE E" => "500 what?",
            _ => tame(command),
        });
        let mut server = server.ok().unwrap();
        let too_many = || Err(OpenError::refused(Refused::Unreachable, "421 too many", "try again"));
        let own = Arc::get_mut(&mut server).unwrap();
        own.turn_patience = LINGERING;
        let dial = std::mem::replace(&mut own.dial, Box::new(too_many));
        // The conversation of the trial is counted for a moment after it was given up.
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        own.dial = Box::new(move || if counted.fetch_add(1, Relaxed) == 1 { too_many() } else { dial() });
        assert!(matches!(trial(&server), Err(Fault::Refused { code: 500, .. })));
        let _both = [server.lease().unwrap(), server.lease().unwrap()];
        let idle = server.idle.lock().unwrap();
        assert_eq!((asked.load(Relaxed), idle.open, idle.most), (3, 2, SESSIONS_MAX));
    }
}

#[test]
fn a_lost_conversation_leaves_its_place_to_the_one_that_asks_again() {
    let mut server = server(tame).ok().unwrap();
    drop(crowd(&mut server));
    let is_again = Cell::new(false);
    let asked = server.with(|session| match is_again.replace(true) {
        false => Err(session.line.lose("it is gone")),
        true => Ok(()),
    });
    asked.unwrap();
}
