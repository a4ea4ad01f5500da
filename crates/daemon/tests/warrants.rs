//! Warrants at a real endpoint: what they let in, what they allow, and everything that they do not.

use daemon::endpoints::Replace;
use daemon::{ConnectOptions, Endpoint, EndpointBook, Issue, ServeOptions, Served, Ticket, connect, enrol};
use model::files::Question;
use model::order::{Kind, Role, Steer};
use model::warrant::{Signed, Verbs};
use model::{JobId, Pin, TransferOptions, Warrant};
use mover::session::{AskError, Client, PushSpec};
use mover::{Ending, Progress};
use net::Identity;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::posix::PosixSource;
use tempfile::TempDir;
use transfer::Reach;
use wire::message::{Order, OrderAsk, OrderSteer, Revoke};
use wire::{CloseCode, Message, Refusal};

const JOB: JobId = JobId([5; 16]);
const BOTH: Verbs = Verbs { read: true, write: true, delete: false };

/// An endpoint, a client that is enrolled there, and another endpoint's key.
struct Place {
    dir: TempDir,
    served: Served,
    client: Identity,
    known: Endpoint,
    holder: Identity,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("root/in")).unwrap();
        fs::write(dir.path().join("root/in/there"), "there").unwrap();
        fs::write(dir.path().join("new"), "new").unwrap();
        let mut options = ServeOptions::new("127.0.0.1:0", dir.path().join("root"), dir.path().join("state"));
        options.name = Some("lab".into());
        let served = Served::start(options).unwrap();
        let (client, holder) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let known = Place::enrol(&dir, &served.ticket(), &client);
        Place { dir, served, client, known, holder }
    }

    fn enrol(dir: &TempDir, ticket: &Ticket, client: &Identity) -> Endpoint {
        let book = EndpointBook::new(dir.path().join(format!("book-{}", client.pin())));
        enrol(ticket, "lab", client, &book, Replace::SameIdentity).unwrap().endpoint
    }

    fn warrant(&self) -> Warrant {
        let (holder, audience) = (self.holder.pin(), self.served.pin());
        let (not_before, expires) = (now(), now() + 600);
        Warrant {
            holder,
            audience,
            job: JOB,
            verbs: BOTH,
            not_before,
            expires,
            id: [9; 16],
            paths: vec![b"in".to_vec()],
        }
    }

    fn signed(&self, warrant: Warrant) -> Vec<u8> {
        let signature = self.client.sign(&warrant.signed_bytes());
        Signed { warrant, issuer: self.client.spki().try_into().unwrap(), signature }.encode()
    }

    fn reach(&self, identity: &Identity, credential: Vec<u8>) -> Client {
        let options = ConnectOptions::default();
        let reach = Reach { name: "lab", pin: self.served.pin(), credential, identity, options: &options };
        reach.connect(&self.known.addresses).unwrap()
    }

    /// A session of whoever has the holder's key.
    fn let_in(&self, warrant: Warrant) -> Client {
        self.reach(&self.holder, self.signed(warrant))
    }

    fn push(&self, client: &Client, job: JobId, path: &[u8], options: TransferOptions) -> Ending {
        let mut source = PosixSource::new();
        source.add_local(self.dir.path().join("new").as_os_str().as_encoded_bytes()).unwrap();
        let spec = PushSpec { id: job, path: path.to_vec(), is_single: true, options };
        client.push(spec, Arc::new(source), Progress::new(), None, &|| false).ending
    }

    fn look(&self, client: &Client, path: &[u8]) -> Result<(), Refusal> {
        let question = Question::List { paths: vec![path.to_vec()], levels: 0, digest: None };
        match client.ask(&question, &|| false, &mut |_| true) {
            Ok(_) => Ok(()),
            Err(AskError::Refused(refusal)) => Err(refusal),
            Err(e) => panic!("{e}"),
        }
    }
}

fn refused(ending: Ending) -> Refusal {
    let Ending::Cancelled { by_peer: true, refusal } = ending else { panic!("{ending}") };
    refusal
}

/// Why a session is not opened.
fn shut_out(client: &Client) -> Refusal {
    match client.welcome() {
        Err(mover::session::ConnectError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_warrant_allows_its_job_at_its_paths_by_its_verbs_and_nothing_else() {
    let place = Place::new();
    let plain = TransferOptions::default;
    let client = place.let_in(place.warrant());
    assert!(matches!(place.push(&client, JOB, b"in/new", plain()), Ending::Finished(_)));
    assert_eq!(fs::read(place.dir.path().join("root/in/new")).unwrap(), b"new");
    place.look(&client, b"in/new").unwrap();
    let other_path = refused(place.push(&client, JOB, b"inner/new", plain()));
    assert_eq!((other_path.code, other_path.text.contains("for another path")), (CloseCode::Forbidden, true));
    assert!(place.look(&client, b"").unwrap_err().text.contains("for another path"));
    let other_job = refused(place.push(&client, JobId([6; 16]), b"in/more", plain()));
    assert_eq!((other_job.code, other_job.text.contains("for another job")), (CloseCode::Authentication, true));
    let keeps_old = TransferOptions { backup: Some(b"old".to_vec()), ..plain() };
    assert!(refused(place.push(&client, JOB, b"in/there", keeps_old)).text.contains("does not allow"));
    // It hands nothing in.
    let asked = client.request(|number| OrderAsk { number, ..OrderAsk::default() }.into(), &|| false);
    assert!(asked.is_ok_and(|(jobs, _)| jobs.is_empty()));
    let writes = place.let_in(Warrant { verbs: Verbs { write: true, ..Verbs::default() }, ..place.warrant() });
    assert!(matches!(place.push(&writes, JOB, b"in/newer", plain()), Ending::Finished(_)));
    assert_eq!(place.look(&writes, b"in/there").unwrap_err().code, CloseCode::Forbidden);
    let reads = place.let_in(Warrant { verbs: Verbs { read: true, ..Verbs::default() }, ..place.warrant() });
    assert_eq!(refused(place.push(&reads, JOB, b"in/newest", plain())).code, CloseCode::Forbidden);
    assert!(!place.dir.path().join("root/in/newest").exists() && !place.dir.path().join("root/inner").exists());
}

#[test]
fn nobody_gets_in_by_a_warrant_that_is_not_theirs_or_does_not_hold() {
    let place = Place::new();
    let good = place.signed(place.warrant());
    let thief = Identity::generate().unwrap();
    let stranger = Identity::generate().unwrap();
    let by_stranger = {
        let warrant = place.warrant();
        let signature = stranger.sign(&warrant.signed_bytes());
        Signed { warrant, issuer: stranger.spki().try_into().unwrap(), signature }.encode()
    };
    let with = |change: &dyn Fn(&mut Warrant)| {
        let mut warrant = place.warrant();
        change(&mut warrant);
        place.signed(warrant)
    };
    for (identity, credential, text) in [
        (&thief, good.clone(), "given to another endpoint"),
        (&place.client, good.clone(), "given to another endpoint"),
        (&place.holder, by_stranger, "not enrolled here"),
        (&place.holder, with(&|w| w.audience = Pin([1; 32])), "for another endpoint"),
        (&place.holder, with(&|w| w.expires = now() - 1), "expired at"),
        (&place.holder, with(&|w| w.not_before = now() + 4000), "is valid from"),
        (&place.holder, with(&|w| w.expires = now() + 30 * 86_400), "7 days"),
        (&place.holder, good[..good.len() - 1].to_vec(), "damaged"),
    ] {
        let refusal = shut_out(&place.reach(identity, credential));
        assert_eq!(refusal.code, CloseCode::Authentication, "{text}: {refusal}");
        assert!(refusal.text.contains(text), "{text}: {refusal}");
    }
    // Each byte of it, one bit at a time: all bits are tried where the bytes are checked.
    for at in 0..good.len() {
        let mut other = good.clone();
        other[at] ^= 1 << (at % 8);
        let refusal = shut_out(&place.reach(&place.holder, other));
        assert_eq!(refusal.code, CloseCode::Authentication, "byte {at}: {refusal}");
    }
    // Nobody was enrolled on the way.
    assert_eq!(fs::read_dir(place.dir.path().join("state/clients")).unwrap().count(), 1);
}

#[test]
fn a_warrant_is_worth_what_its_issuer_may_at_that_moment() {
    let place = Place::new();
    let issue = Issue::new(place.dir.path().join("state"));
    let limits = daemon::limited::Limits {
        scope: Vec::new(),
        may_read: true,
        may_write: false,
        expires: None,
        uses_max: None,
        class_max: model::Class::High,
        may_manage: false,
    };
    let reader = Identity::generate().unwrap();
    Place::enrol(&place.dir, &issue.create(limits).unwrap().1, &reader);
    let warrant = place.warrant();
    let signature = reader.sign(&warrant.signed_bytes());
    let credential = Signed { warrant, issuer: reader.spki().try_into().unwrap(), signature }.encode();
    let client = place.reach(&place.holder, credential);
    let refusal = refused(place.push(&client, JOB, b"in/new", TransferOptions::default()));
    assert!(refusal.text.contains("may only read"), "{refusal}");
}

/// An endpoint works for many. Whoever got hold of another client's warrant for it does not get it to use that one.
#[test]
fn an_endpoint_uses_a_warrant_for_nobody_but_its_issuer() {
    let place = Place::new();
    let thief = Identity::generate().unwrap();
    Place::enrol(&place.dir, &place.served.ticket(), &thief);
    let other = Pin([3; 32]);
    let of_victim = place.signed(Warrant { holder: place.served.pin(), audience: other, ..place.warrant() });
    let order = |number, warrant: &[u8]| {
        Message::from(Order {
            number,
            job_id: JOB.0.to_vec(),
            role: Role::Sends as u32,
            peer_pin: other.0.to_vec(),
            peer_name: "other".into(),
            addresses: vec![b"127.0.0.1:1".to_vec()],
            warrant: warrant.to_vec(),
            transfer: r#"{"version":1,"sources":["lab:in"],"destination":"other:in"}"#.into(),
            kind: Kind::Copy as u32,
            own_name: "lab".into(),
        })
    };
    let ask = |identity: &Identity, make: &dyn Fn(u32) -> Message| {
        let client = place.reach(identity, Vec::new());
        client.welcome().unwrap();
        match client.request(make, &|| false) {
            Ok(_) => Ok(()),
            Err(AskError::Refused(refusal)) => Err(refusal),
            Err(e) => panic!("{e}"),
        }
    };
    let refusal = ask(&thief, &|number| order(number, &of_victim)).unwrap_err();
    assert_eq!((refusal.code, refusal.text.contains("another client")), (CloseCode::Authentication, true), "{refusal}");
    // Nor afterwards, for a job that it handed in with a warrant of its own.
    let own = {
        let warrant = Warrant { holder: place.served.pin(), audience: other, ..place.warrant() };
        let signature = thief.sign(&warrant.signed_bytes());
        Signed { warrant, issuer: thief.spki().try_into().unwrap(), signature }.encode()
    };
    ask(&thief, &|number| order(number, &own)).unwrap();
    let steer = |number| {
        let (steer, warrant) = (Steer::Resume as u32, of_victim.clone());
        OrderSteer { number, job_id: JOB.0.to_vec(), steer, warrant, ..OrderSteer::default() }.into()
    };
    assert!(ask(&thief, &steer).unwrap_err().text.contains("another client"));
    ask(&place.client, &|number| order(number, &of_victim)).unwrap();
}

/// What the command line refuses, an order may ask for all the same.
#[test]
fn an_order_asks_for_nothing_that_a_command_may_not() {
    let place = Place::new();
    let other = Pin([3; 32]);
    let warrant = place.signed(Warrant { holder: place.served.pin(), audience: other, ..place.warrant() });
    let client = place.reach(&place.client, Vec::new());
    for (more, why) in [
        (r#""streams":4000000000"#, "more data streams"),
        (r#""chmod":["4755","755"]"#, "permission bits"),
        (r#""backup-dir":".thalweg-staging-x""#, "staging of transfers"),
    ] {
        let order = |number| {
            Message::from(Order {
                number,
                job_id: JOB.0.to_vec(),
                role: Role::Fetches as u32,
                peer_pin: other.0.to_vec(),
                peer_name: "other".into(),
                addresses: vec![b"127.0.0.1:1".to_vec()],
                warrant: warrant.clone(),
                transfer: format!(r#"{{"version":1,"sources":["other:in"],"destination":"lab:in",{more}}}"#),
                kind: Kind::Copy as u32,
                own_name: "lab".into(),
            })
        };
        match client.request(order, &|| false) {
            Err(AskError::Refused(refusal)) => assert!(refusal.text.contains(why), "{more}: {refusal}"),
            other => panic!("{more}: {:?}", other.map(drop).map_err(|e| e.to_string())),
        }
    }
}

#[test]
fn what_runs_under_a_warrant_ends_when_it_is_taken_back_or_its_issuer_is_removed() {
    let place = Place::new();
    let ends = |client: &Client, since: Instant| {
        while client
            .ask(&Question::List { paths: vec![b"in".to_vec()], levels: 0, digest: None }, &|| false, &mut |_| true)
            .is_ok()
        {
            assert!(since.elapsed() < Duration::from_secs(5), "it goes on");
            std::thread::park_timeout(Duration::from_millis(50));
        }
    };
    let (taken_back, other) = (place.let_in(place.warrant()), place.let_in(Warrant { id: [8; 16], ..place.warrant() }));
    place.look(&taken_back, b"in").unwrap();
    let issuer = connect(&place.known, &place.client, &ConnectOptions::default()).unwrap();
    issuer.request(|number| Revoke { number, warrant_id: vec![9; 16] }.into(), &|| false).unwrap();
    // Nobody uses up the room for that by a warrant.
    let refused = other.request(|number| Revoke { number, warrant_id: vec![1; 16] }.into(), &|| false);
    assert!(matches!(refused, Err(AskError::Refused(refusal)) if refusal.code == CloseCode::Forbidden));
    ends(&taken_back, Instant::now());
    assert!(shut_out(&place.let_in(place.warrant())).text.contains("was revoked"));
    place.look(&other, b"in").unwrap();
    fs::remove_file(place.dir.path().join(format!("state/clients/{}.toml", place.client.pin()))).unwrap();
    ends(&other, Instant::now());
    assert!(shut_out(&place.let_in(Warrant { id: [7; 16], ..place.warrant() })).text.contains("not enrolled"));
}
