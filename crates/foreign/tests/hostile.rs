//! Servers that lie, against what is read from them.

use foreign::sftp::{Dial, Host, Line, Servers};
use model::{FailureKind, Location, TransferOptions};
use std::io::{Read, Write, pipe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use store::open::{Opener, Refused, Rights, Shape, SinkRequest};
use store::{Fate, Found, How, OpenError, Prune, PublishRule, Sink};

const OPEN: u8 = 3;
const READ: u8 = 5;
const WRITE: u8 = 6;
const LSTAT: u8 = 7;
const FSTAT: u8 = 8;
const READDIR: u8 = 12;
const STAT: u8 = 17;
const RENAME: u8 = 18;

/// Answers a request by its kind, number and order among those of its kind; `None` leaves it to a plain server with one
/// directory and one file of ten bytes.
type Lie = fn(u8, u32, u32) -> Option<Vec<u8>>;

struct Liar {
    lie: Lie,
    greeting: &'static [u8],
    dialled: Arc<AtomicU32>,
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn packet(kind: u8, number: u32, body: &[u8]) -> Vec<u8> {
    string(&[&[kind][..], &number.to_be_bytes(), body].concat())
}

fn status(number: u32, code: u32) -> Vec<u8> {
    packet(101, number, &[code.to_be_bytes().to_vec(), string(b""), string(b"")].concat())
}

fn attributes(mode: u32, size_bytes: u64) -> Vec<u8> {
    let numbers = [mode, 5, 5].map(u32::to_be_bytes).concat();
    [&13u32.to_be_bytes()[..], &size_bytes.to_be_bytes(), &numbers].concat()
}

fn names(number: u32, names: &[&[u8]], mode: u32, size_bytes: u64) -> Vec<u8> {
    let each = names.iter().flat_map(|name| [string(name), string(b""), attributes(mode, size_bytes)].concat());
    packet(104, number, &[(names.len() as u32).to_be_bytes().to_vec(), each.collect()].concat())
}

fn plain(kind: u8, number: u32, order: u32) -> Vec<u8> {
    match kind {
        LSTAT | STAT => packet(105, number, &attributes(0o040_755, 0)),
        FSTAT => packet(105, number, &attributes(0o100_644, 10)),
        OPEN | 11 => packet(102, number, &string(b"h")),
        READDIR if order == 0 => names(number, &[b".", b"..", b"file"], 0o100_644, 10),
        READDIR => status(number, 1),
        READ if order == 0 => packet(103, number, &string(b"0123456789")),
        READ => status(number, 1),
        _ => status(number, 0),
    }
}

impl Dial for Liar {
    fn dial(&self, _: &Host) -> Result<Line, OpenError> {
        self.dialled.fetch_add(1, SeqCst);
        let ((mut asked, input), (output, mut said)) = (pipe().unwrap(), pipe().unwrap());
        let (lie, greeting) = (self.lie, self.greeting);
        let serve = move || {
            let mut orders = [0u32; 256];
            let mut length = [0; 4];
            let _ = said.write_all(greeting);
            while asked.read_exact(&mut length).is_ok() {
                let mut body = vec![0; u32::from_be_bytes(length) as usize];
                if asked.read_exact(&mut body).is_err() || body[0] == 1 {
                    continue;
                }
                let number = u32::from_be_bytes(body[1..5].try_into().unwrap());
                let order = orders[usize::from(body[0])];
                orders[usize::from(body[0])] += 1;
                let answer = lie(body[0], number, order).unwrap_or_else(|| plain(body[0], number, order));
                // An empty answer hangs up.
                if answer.is_empty() || said.write_all(&answer).is_err() {
                    return;
                }
            }
        };
        std::thread::spawn(serve);
        let why = || OpenError::Refused { why: Refused::Unreachable, text: "ended".into(), advice: String::new() };
        Ok(Line { input: Box::new(input), output: Box::new(output), why: Box::new(why) })
    }
}

/// Takes what it is told, and says nothing.
struct Mute;

impl Dial for Mute {
    fn dial(&self, _: &Host) -> Result<Line, OpenError> {
        let ((asked, input), (output, said)) = (pipe().unwrap(), pipe().unwrap());
        let why = move || {
            drop((asked, said));
            OpenError::Refused { why: Refused::Unreachable, text: "ended".into(), advice: String::new() }
        };
        Ok(Line { input: Box::new(input), output: Box::new(output), why: Box::new(why) })
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(1)
    }
}

const GREETING: &[u8] = &[0, 0, 0, 5, 2, 0, 0, 0, 3];
/// Of a server that has fsync@openssh.com.
const SYNCING: &[u8] = b"\0\0\0\x1f\x02\0\0\0\x03\0\0\0\x11fsync@openssh.com\0\0\0\x011";
/// Of one that has posix-rename@openssh.com.
const REPLACING: &[u8] = b"\0\0\0\x26\x02\0\0\0\x03\0\0\0\x18posix-rename@openssh.com\0\0\0\x011";

fn servers(lie: Lie) -> (Servers, Arc<AtomicU32>) {
    greeting_servers(GREETING, lie)
}

fn greeting_servers(greeting: &'static [u8], lie: Lie) -> (Servers, Arc<AtomicU32>) {
    let dialled = Arc::new(AtomicU32::new(0));
    (Servers::new(Arc::new(Liar { lie, greeting, dialled: dialled.clone() })), dialled)
}

fn location() -> Location {
    Location::Url { scheme: "sftp".into(), rest: b"liar/d/".to_vec() }
}

/// What a scan tells: paths of objects, and failures.
fn scan(lie: Lie) -> (Vec<String>, Vec<String>, Option<String>) {
    let source = servers(lie).0.source(&[location()], &TransferOptions::default()).ok().unwrap().source;
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    let result = source.scan(&mut |one| {
        match one {
            Found::Object(object) => found.push(object.entry.name.to_string()),
            Found::Failed(failure) => failures.push(format!("{:?} {}", failure.kind, failure.message)),
        }
        found.len() < 1000
    });
    (found, failures, result.err().map(|e| e.to_string()))
}

#[test]
fn an_honest_server_is_believed() {
    let (found, failures, error) = scan(|_, _, _| None);
    assert_eq!((found, failures, error), (vec!["file".to_owned()], vec![], None));
}

#[test]
fn names_that_climb_or_stand_twice_are_told_and_never_taken() {
    let (found, failures, error) = scan(|kind, number, order| {
        let listed: &[&[u8]] = &[b"../x", b"a/b", b"", b"good", b"good", b"nul\0", &[b'x'; 256]];
        (kind == READDIR && order == 0).then(|| names(number, listed, 0o100_644, 1))
    });
    assert_eq!((found, error), (vec!["good".to_owned()], None));
    assert_eq!(failures.len(), 6, "{failures:?}");
    assert!(failures.iter().all(|failure| failure.starts_with("NameRefused")), "{failures:?}");
}

/// A name of which nothing is told.
fn bare(number: u32) -> Vec<u8> {
    packet(104, number, &[&1u32.to_be_bytes()[..], &string(b"file"), &string(b""), &[0; 4]].concat())
}

/// Whoever takes it for gone removes its copies.
#[test]
fn what_is_there_and_may_be_anything_is_told_and_what_is_gone_is_not() {
    let untold: Lie = |kind, number, order| match kind {
        READDIR if order == 0 => Some(bare(number)),
        LSTAT => Some(packet(105, number, &[0; 4])),
        _ => None,
    };
    let (found, failures, error) = scan(untold);
    assert!(found.is_empty() && error.is_none(), "{found:?} {error:?}");
    assert!(failures.len() == 1 && failures[0].contains("does not tell what file is"), "{failures:?}");
    let gone: Lie = |kind, number, order| match kind {
        READDIR if order == 0 => Some(bare(number)),
        LSTAT => Some(status(number, 2)),
        _ => None,
    };
    assert_eq!(scan(gone), (vec![], vec![], None));
}

/// Names that are passed over, and directories that lie in each other, without an end.
#[test]
fn a_server_that_goes_on_for_ever_is_not_listened_to_for_ever() {
    let (found, _, error) =
        scan(|kind, number, _| (kind == READDIR).then(|| names(number, &[&b"."[..]; 10_000], 0o040_755, 0)));
    assert!(found.is_empty() && error.as_ref().is_some_and(|e| e.contains("2,000,000 names")), "{error:?}");
    let nested: Lie = |kind, number, order| match kind {
        READDIR if order % 3 == 0 => Some(names(number, &[b"in"], 0o040_755, 0)),
        READDIR => Some(status(number, 1)),
        _ => None,
    };
    let (found, failures, error) = scan(nested);
    assert_eq!((found.len(), error), (256, None));
    assert!(failures.len() == 1 && failures[0].contains("more than 256 deep"), "{failures:?}");
}

#[test]
fn what_makes_no_sense_ends_in_an_error_that_says_so() {
    let lies: [(Lie, &str); 7] = [
        (|kind, number, _| (kind == READDIR).then(|| names(number, &[], 0, 0)), "with no name"),
        (|kind, number, _| (kind == READDIR).then(|| status(number, 0)), "something else than names"),
        (|kind, number, _| (kind == READDIR).then(|| status(number ^ 1000, 1)), "keep to the SFTP protocol"),
        (|kind, _, _| (kind == READDIR).then(|| [255; 12].to_vec()), "longer than 512 KiB"),
        (|kind, number, _| (kind == READDIR).then(|| packet(104, number, &[255; 4])), "shorter than it says"),
        (|kind, number, _| (kind == READDIR).then(|| packet(77, number, &[])), "of no kind"),
        (|kind, number, _| (kind == 11).then(|| status(number, 3)), "does not permit"),
    ];
    for (lie, why) in lies {
        let (_, _, error) = scan(lie);
        assert!(error.as_ref().is_some_and(|error| error.contains(why)), "{why}: {error:?}");
    }
}

#[test]
fn a_size_that_no_file_has_fails_that_file() {
    let (found, failures, _) = scan(|kind, number, order| {
        (kind == READDIR && order == 0).then(|| names(number, &[b"f"], 0o100_644, u64::MAX))
    });
    assert!(found.is_empty() && failures[0].contains("which no file has"), "{found:?} {failures:?}");
}

#[test]
fn directories_that_never_end_are_left_at_a_path_of_eight_kibibytes() {
    let source = servers(|kind, number, order| match kind {
        READDIR if order % 3 == 0 => Some(names(number, &[&[b'd'; 200]], 0o040_755, 0)),
        _ => None,
    });
    let source = source.0.source(&[location()], &TransferOptions::default()).ok().unwrap().source;
    let (mut found, mut failed) = (0, 0);
    source
        .scan(&mut |one| {
            match one {
                Found::Object(_) => found += 1,
                Found::Failed(failure) => failed += u32::from(failure.message.contains("longer than 8192")),
            }
            found < 1000
        })
        .unwrap();
    assert!(found < 50 && failed == 1, "{found} directories, {failed} failures");
}

/// Reads the file by a buffer of twenty bytes.
fn read(lie: Lie) -> Result<(Vec<u8>, bool), (FailureKind, String)> {
    let source = servers(lie).0.source(&[location()], &TransferOptions::default()).ok().unwrap().source;
    let mut object = None;
    source
        .scan(&mut |one| {
            if let Found::Object(found) = one {
                object = Some(found);
            }
            true
        })
        .unwrap();
    let (object, mut buffer) = (object.unwrap(), [0; 20]);
    let read = source.lane().read_whole(&object, &mut buffer).map_err(|e| (e.kind, e.to_string()))?;
    Ok((buffer[..read.0].to_vec(), read.1 == object.entry.generation))
}

#[test]
fn content_is_what_was_asked_for_or_an_error() {
    assert_eq!(read(|_, _, _| None), Ok((b"0123456789".to_vec(), true)));
    // Short answers are asked on from where they end.
    let drip: Lie = |kind, number, order| {
        (kind == READ && order < 10).then(|| packet(103, number, &string(&b"0123456789"[order as usize..][..1])))
    };
    assert_eq!(read(drip), Ok((b"0123456789".to_vec(), true)));
    // A file that ends early has another generation than the listing said.
    let cut: Lie = |kind, number, order| match kind {
        READ if order == 0 => Some(packet(103, number, &string(b"01234"))),
        FSTAT => Some(packet(105, number, &attributes(0o100_644, 5))),
        _ => None,
    };
    assert_eq!(read(cut), Ok((b"01234".to_vec(), false)));
    let lies: [(Lie, &str); 4] = [
        (|kind, number, _| (kind == READ).then(|| packet(103, number, &string(&[7; 21]))), "more than was asked for"),
        (|kind, number, _| (kind == READ).then(|| packet(103, number, &string(b""))), "with no byte"),
        (|kind, number, _| (kind == READ).then(|| status(number, 0)), "something else than data"),
        (|kind, _, _| (kind == READ).then(Vec::new), "was lost"),
    ];
    for (lie, why) in lies {
        let (kind, error) = read(lie).unwrap_err();
        assert!(kind == FailureKind::ReadError && error.contains(why), "{why}: {kind:?} {error}");
    }
}

fn sink(lie: Lie) -> Arc<dyn Sink> {
    sink_of(&servers(lie).0)
}

fn sink_of(servers: &Servers) -> Arc<dyn Sink> {
    let options = TransferOptions::default();
    let request =
        SinkRequest { rights: Rights::Write, shape: Shape::Tree, is_nameless: false, is_own: false, options: &options };
    servers.sink(&location(), &request).ok().unwrap().sink
}

fn file() -> model::Entry {
    model::Entry {
        id: model::ObjectId(1),
        parent: model::ObjectId::ROOT,
        name: model::Name::new(b"file").unwrap(),
        kind: model::Kind::File,
        mode: 0o644,
        generation: model::Generation { size_bytes: 3, ..model::Generation::default() },
        attributes: None,
    }
}

/// What lies there is not in memory, and yet a copy in it must not stand alone.
#[test]
fn a_server_that_cannot_sync_is_known_as_one_and_what_was_left_there_is_read_again() {
    for (greeting, syncs) in [(GREETING, false), (SYNCING, true)] {
        let sink = sink_of(&greeting_servers(greeting, |_, _, _| None).0);
        let facts = sink.facts().unwrap();
        assert_eq!((facts.cannot_sync, facts.is_memory_backed), (!syncs, !syncs));
        let (staged, journal) = sink.begin(&file(), "stem").unwrap();
        assert_eq!((&journal[..], staged.outlasts_its_host()), (&b"0123456789"[..], syncs));
    }
}

#[test]
fn what_is_staged_is_read_back_to_its_end_and_not_for_ever() {
    let endless: Lie = |kind, number, order| match kind {
        OPEN if order == 0 => Some(status(number, 2)),
        READ if order < 1000 => Some(packet(103, number, &string(b"x"))),
        READ => Some(status(number, 1)),
        _ => None,
    };
    let (staged, _) = sink(endless).begin(&file(), "stem").unwrap();
    let mut read = 0;
    staged.reread(&mut |bytes| read += bytes.len()).unwrap();
    assert_eq!(read, 3);
}

/// What is removed of a directory of which the source has `FILE`, and what is not.
fn pruned(lie: Lie) -> (Vec<String>, Vec<String>) {
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    sink(lie).prune(&mut Prune {
        directories: &[model::ObjectId::ROOT],
        is_listed: &|_, name| name.as_bytes() == b"FILE",
        is_listed_alike: &|_, name| name.as_bytes().eq_ignore_ascii_case(b"FILE"),
        fate: &|_, _| Fate::Remove,
        is_rehearsal: false,
        removed: &mut |path, _| removed.push(String::from_utf8(path.to_vec()).unwrap()),
        failed: &mut |failure| failed.push(String::from_utf8(failure.path).unwrap()),
        goes_on: &|| true,
    });
    (removed, failed)
}

#[test]
fn what_a_server_has_in_another_case_is_not_removed_unless_it_tells_case_apart() {
    let folds: Lie = |_, _, _| None;
    assert_eq!(pruned(folds), (vec![], vec!["file".to_owned()]));
    let tells: Lie = |kind, number, order| {
        (kind == READDIR && order == 0).then(|| names(number, &[b"FILE", b"file", b"other"], 0o100_644, 10))
    };
    assert_eq!(pruned(tells), (vec!["file".to_owned(), "other".to_owned()], vec![]));
}

/// Publishes a file, new or not.
fn publish(lie: Lie, rule: PublishRule) -> Result<(), (FailureKind, String)> {
    publish_to(&*sink(lie), rule)
}

fn publish_to(sink: &dyn Sink, rule: PublishRule) -> Result<(), (FailureKind, String)> {
    let entry = file();
    let mut lane = sink.lane(false).unwrap();
    lane.create(&entry, rule).unwrap();
    lane.write(b"one").unwrap();
    let staged = lane.seal(&entry, false).unwrap();
    lane.publish(&entry, staged).map_err(|e| (e.kind, e.to_string()))
}

#[test]
fn nothing_is_replaced_where_it_cannot_be_in_one_step() {
    let file: Lie = |kind, number, _| (kind == LSTAT).then(|| packet(105, number, &attributes(0o100_644, 5)));
    let (kind, error) = publish(file, PublishRule::Replace).unwrap_err();
    assert!(kind == FailureKind::InTheWay && error.contains("no posix-rename@openssh.com"), "{error}");
    let (kind, error) = publish(file, PublishRule::NoReplace).unwrap_err();
    assert!(kind == FailureKind::InTheWay && error.contains("appeared there meanwhile"), "{error}");
    let free: Lie = |kind, number, _| (kind == LSTAT).then(|| status(number, 2));
    assert_eq!(publish(free, PublishRule::Replace), Ok(()));
}

/// Not every server keeps a plain RENAME from replacing.
#[test]
fn what_is_to_be_new_is_looked_for_at_servers_that_can_replace_too() {
    static RENAMES: AtomicU32 = AtomicU32::new(0);
    let taken: Lie = |kind, number, _| match kind {
        LSTAT => Some(packet(105, number, &attributes(0o100_644, 5))),
        RENAME => {
            RENAMES.fetch_add(1, SeqCst);
            None
        }
        _ => None,
    };
    let sink = sink_of(&greeting_servers(REPLACING, taken).0);
    let (kind, error) = publish_to(&*sink, PublishRule::NoReplace).unwrap_err();
    assert!(kind == FailureKind::InTheWay && error.contains("appeared there meanwhile"), "{error}");
    assert_eq!(RENAMES.load(SeqCst), 0);
}

/// What lies behind it would be removed.
#[test]
fn a_link_with_a_slash_behind_it_is_not_taken() {
    let link: Lie = |kind, number, _| (kind == LSTAT).then(|| packet(105, number, &attributes(0o120_777, 1)));
    let Err(OpenError::Source { error, .. }) = servers(link).0.shelf(&location(), How::Take) else { panic!("taken") };
    assert!(error.kind == FailureKind::InTheWay && error.to_string().contains("is a symbolic link"), "{error}");
    assert!(servers(link).0.shelf(&location(), How::Look).is_ok());
    assert!(servers(|_, _, _| None).0.shelf(&location(), How::Take).is_ok());
}

#[test]
fn a_destination_that_may_not_be_looked_at_is_not_told_to_be_unreachable() {
    let options = TransferOptions::default();
    let request =
        SinkRequest { rights: Rights::Write, shape: Shape::Tree, is_nameless: false, is_own: false, options: &options };
    let denied: Lie = |kind, number, _| (kind == STAT).then(|| status(number, 3));
    let opened = servers(denied).0.sink(&location(), &request);
    let Err(OpenError::Destination { error, .. }) = opened else { panic!("it is told otherwise") };
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
    let lost: Lie = |kind, _, _| (kind == STAT).then(Vec::new);
    let opened = servers(lost).0.sink(&location(), &request);
    assert!(matches!(opened, Err(OpenError::Refused { why: Refused::Unreachable, .. })));
}

/// Over distance each look is a round trip.
#[test]
fn a_destination_that_is_there_is_looked_at_once() {
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    let counted: Lie = |kind, _, _| {
        LOOKS.fetch_add(u32::from(matches!(kind, LSTAT | STAT)), SeqCst);
        None
    };
    let _sink = sink(counted);
    assert_eq!(LOOKS.load(SeqCst), 1);
}

#[test]
fn a_write_or_rename_that_is_refused_fails_its_file() {
    let denied: Lie = |kind, number, _| match kind {
        LSTAT => Some(status(number, 2)),
        OPEN => Some(status(number, 3)),
        _ => None,
    };
    assert_eq!(publish(denied, PublishRule::NoReplace).unwrap_err().0, FailureKind::Permission);
    let full: Lie = |kind, number, _| match kind {
        LSTAT => Some(status(number, 2)),
        WRITE => Some(status(number, 4)),
        _ => None,
    };
    assert_eq!(publish(full, PublishRule::NoReplace).unwrap_err().0, FailureKind::WriteError);
    let unnamed: Lie = |kind, number, _| match kind {
        LSTAT => Some(status(number, 2)),
        RENAME => Some(status(number, 4)),
        _ => None,
    };
    assert!(publish(unnamed, PublishRule::NoReplace).unwrap_err().1.contains("refused (status 4)"));
}

#[test]
fn a_greeting_that_is_none_is_told() {
    for (greeting, why) in [
        (&b"Welcome to this host\n"[..], "login scripts must print nothing"),
        (&[0, 0, 0, 5, 2, 0, 0, 0, 2], "version 2"),
        (&[0, 0, 0, 5, 9, 0, 0, 0, 3], "does not begin with a greeting"),
        (&[0, 0, 0, 2, 2, 0], "cut"),
        (&[255, 0, 0, 0], "longer than 512 KiB"),
    ] {
        let liar = Liar { lie: |_, _, _| None, greeting, dialled: Arc::default() };
        let opened = Servers::new(Arc::new(liar)).source(&[location()], &TransferOptions::default());
        let Err(OpenError::Refused { why: Refused::Unreachable, text, .. }) = opened else { panic!("{why}") };
        assert!(text.contains(why), "{why}: {text}");
    }
}

#[test]
fn a_server_that_never_greets_is_given_up() {
    let opened = Servers::new(Arc::new(Mute)).source(&[location()], &TransferOptions::default());
    let Err(OpenError::Refused { why: Refused::Unreachable, text, .. }) = opened else { panic!("it was opened") };
    assert!(text.contains("liar has not greeted for 1 s"), "{text}");
}

#[test]
fn a_connection_that_is_lost_is_made_again_three_times_and_not_for_ever() {
    let (servers, dialled) = servers(|kind, _, _| (kind == READDIR).then(Vec::new));
    let source = servers.source(&[location()], &TransferOptions::default()).ok().unwrap().source;
    for _ in 0..10 {
        assert!(source.scan(&mut |_| true).unwrap_err().to_string().contains("was lost"));
    }
    assert_eq!(dialled.load(SeqCst), 4);
}

/// Counts the lines that ended, and how many had when the last one was dialled.
struct Brief {
    liar: Liar,
    ended: Arc<AtomicU32>,
    before: Arc<AtomicU32>,
}

struct Ends(Arc<AtomicU32>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Dial for Brief {
    fn dial(&self, host: &Host) -> Result<Line, OpenError> {
        self.before.store(self.ended.load(SeqCst), SeqCst);
        let Line { input, output, why } = self.liar.dial(host)?;
        let ends = Ends(self.ended.clone());
        let why = move || {
            drop(ends);
            why()
        };
        Ok(Line { input, output, why: Box::new(why) })
    }
}

/// Whoever is held up at it, or holds it up, comes free.
#[test]
fn a_line_that_is_lost_ends_before_another_one_is_dialled() {
    let [dialled, ended, before] = [(); 3].map(|()| Arc::<AtomicU32>::default());
    let lie: Lie = |kind, _, _| (kind == READDIR).then(Vec::new);
    let liar = Liar { lie, greeting: GREETING, dialled: dialled.clone() };
    let servers = Servers::new(Arc::new(Brief { liar, ended, before: before.clone() }));
    let source = servers.source(&[location()], &TransferOptions::default()).ok().unwrap().source;
    assert!(source.scan(&mut |_| true).is_err());
    assert_eq!((dialled.load(SeqCst), before.load(SeqCst)), (2, 1));
}

#[test]
fn a_file_is_read_on_where_its_connection_was_cut() {
    static CUTS: AtomicU32 = AtomicU32::new(0);
    let twice: Lie = |kind, _, order| (kind == READ && order == 0 && CUTS.fetch_add(1, SeqCst) < 2).then(Vec::new);
    CUTS.store(1, SeqCst);
    assert_eq!(read(twice), Ok((b"0123456789".to_vec(), true)));
    CUTS.store(0, SeqCst);
    let (servers, dialled) = servers(twice);
    let source = servers.source(&[location()], &TransferOptions::default()).ok().unwrap().source;
    let mut object = None;
    source
        .scan(&mut |one| {
            if let Found::Object(found) = one {
                object = Some(found);
            }
            true
        })
        .unwrap();
    let object = object.unwrap();
    let file = source.lane().open(&object).unwrap();
    let mut buffer = [0; 20];
    assert_eq!(file.read_at(0, &mut buffer).unwrap(), 10);
    assert_eq!((&buffer[..10], file.generation().unwrap()), (&b"0123456789"[..], object.entry.generation));
    assert_eq!(dialled.load(SeqCst), 3);
}
