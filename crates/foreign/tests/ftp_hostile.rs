//! FTP servers that lie, against what is read from them and written to them.

mod ftp_fake;

use foreign::ftp::FtpServers;
use foreign::sftp::{Dial, Host, Line};
use ftp_fake::{CONTENT, Fake, LINK, Lie, SIZES, start};
use model::files::Tally;
use model::{Entry, Extent, FailureKind, Generation, Kind, Location, Name, ObjectId, Timestamp, TransferOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use store::open::{OpenSource, Opener, Refused, Rights, Shape, SinkRequest};
use store::{
    Fate, Found, How, OpenError, Prune, PublishRule, Sink, Slots, Source, SourceObject, Staged, ToPublish, Visit,
};

/// More than sockets buffer on the way.
const BYTES: usize = 24 << 20;

struct NoSsh;

impl Dial for NoSsh {
    fn dial(&self, _: &Host) -> Result<Line, OpenError> {
        Err(OpenError::Refused { why: Refused::Unreachable, text: "no ssh".into(), advice: String::new() })
    }
}

fn servers() -> FtpServers {
    FtpServers::new(Vec::new(), Arc::new(NoSsh))
}

fn at(fake: &Fake, path: &str) -> Location {
    Location::Url { scheme: "ftp".into(), rest: format!("127.0.0.1:{}{path}", fake.port).into_bytes() }
}

fn open(fake: &Fake) -> Result<OpenSource, OpenError> {
    servers().source(&[at(fake, "/d/")], &TransferOptions::default())
}

/// What a scan finds, without what it fails at.
fn scan(source: &dyn Source) -> store::Result<Vec<SourceObject>> {
    let mut found = Vec::new();
    source.scan(&mut |one| {
        found.extend(if let Found::Object(object) = one { Some(object) } else { None });
        true
    })?;
    Ok(found)
}

fn read(fake: &Fake) -> store::Result<Vec<u8>> {
    let source = open(fake).ok().unwrap().source;
    let found = scan(&*source)?;
    let mut buffer = [0; 100];
    let count = source.lane().read_whole(&found[0], &mut buffer)?.0;
    Ok(buffer[..count].to_vec())
}

fn sink(fake: &Fake) -> Arc<dyn Sink> {
    let options = TransferOptions::default();
    let request =
        SinkRequest { rights: Rights::Write, shape: Shape::Tree, is_nameless: false, is_own: false, options: &options };
    servers().sink(&at(fake, "/d/"), &request).ok().unwrap().sink
}

fn entry(number: u64, name: &str, kind: Kind, bytes: usize) -> Entry {
    let modified = Timestamp { seconds: 1_600_000_000, nanoseconds: 0 };
    let generation = Generation { size_bytes: bytes as u64, modified, ..Generation::default() };
    let name = Name::new(name.as_bytes()).unwrap();
    Entry { id: ObjectId(number), parent: ObjectId::ROOT, name, kind, mode: 0o644, generation, attributes: None }
}

/// Has a small file ready to be sent.
fn stage(sink: &dyn Sink, entry: &Entry, bytes: &[u8]) -> Staged {
    let mut lane = sink.lane(false).unwrap();
    lane.create(entry, PublishRule::NoReplace).unwrap();
    lane.write(bytes).unwrap();
    lane.seal(entry, false).unwrap()
}

/// Sends a file, the way of small ones or that of large ones, to a name that nothing has.
fn write(fake: &Fake, is_large: bool) -> store::Result<()> {
    let (sink, bytes) = (sink(fake), vec![7; BYTES]);
    let entry = entry(1, "new", Kind::File, bytes.len());
    if is_large {
        let (staged, _) = sink.begin(&entry, "stem")?;
        let sent = staged.write_at(0, &bytes).and_then(|()| staged.publish(&entry, PublishRule::NoReplace));
        return sent.inspect_err(|_| staged.discard());
    }
    sink.publish(&entry, stage(&*sink, &entry, &bytes))
}

/// Small files before the one that is there, each of 10 bytes of its own.
fn put_small(fake: &Fake, files: usize) {
    let own = |number: usize| (format!("/d/f{number:03}"), format!("{number:010}").into_bytes());
    fake.files.lock().unwrap().extend((0..files).map(own));
}

/// Reads files as a lane does that is told what comes next, and compares what they are then with what they were.
fn read_ahead(source: &dyn Source, found: &[SourceObject]) -> Vec<store::Result<(Vec<u8>, bool)>> {
    let mut lane = source.lane();
    lane.ahead(found);
    let read = |object: &SourceObject| -> store::Result<(Vec<u8>, bool)> {
        let mut buffer = [0; 10];
        let (count, generation) = lane.read_whole(object, &mut buffer)?;
        Ok((buffer[..count].to_vec(), generation == object.entry.generation))
    };
    found.iter().map(read).collect()
}

/// What `read_ahead` is to find of those that `put_small` made, and of the one behind them.
fn small(files: usize) -> Vec<(Vec<u8>, bool)> {
    let own = (0..files).map(|number| format!("{number:010}").into_bytes());
    own.chain([CONTENT.to_vec()]).map(|content| (content, true)).collect()
}

#[test]
fn an_honest_server_is_believed() {
    let fake = start(Lie::Nothing);
    assert_eq!(read(&fake).unwrap(), CONTENT);
    for is_large in [false, true] {
        fake.files.lock().unwrap().remove("/d/new");
        write(&fake, is_large).unwrap();
        assert_eq!(fake.files.lock().unwrap()["/d/new"].len(), BYTES);
    }
    assert_eq!(fake.files.lock().unwrap().len(), 2, "staging is left");
}

#[test]
fn a_file_that_is_cut_is_never_taken_for_a_whole_one() {
    let error = read(&start(Lie::Cut)).unwrap_err();
    assert!(error.to_string().contains("426 cut"), "{error}");
}

#[test]
fn a_file_that_does_not_lie_there_whole_gets_no_name() {
    for (lie, is_large) in [(Lie::Short, false), (Lie::Short, true)] {
        let fake = start(lie);
        let error = write(&fake, is_large).unwrap_err();
        assert_eq!(error.kind, FailureKind::DigestMismatch, "{error}");
        assert!(!fake.files.lock().unwrap().contains_key("/d/new"), "{lie:?}");
    }
}

/// A rename replaces at such a server.
#[test]
fn a_look_that_failed_makes_no_name_free() {
    for is_large in [false, true] {
        let fake = start(Lie::Blind);
        fake.files.lock().unwrap().insert("/d/new".to_owned(), b"theirs".to_vec());
        let error = write(&fake, is_large).unwrap_err();
        assert!(error.to_string().contains("451 not now"), "{error}");
        assert_eq!(fake.files.lock().unwrap()["/d/new"], b"theirs");
    }
}

#[test]
fn a_word_that_comes_before_the_end_of_a_file_is_not_believed() {
    for is_large in [false, true] {
        let fake = start(Lie::Early);
        let error = write(&fake, is_large).unwrap_err();
        assert!(error.to_string().contains("complete before all of it was sent"), "{error}");
        assert!(!fake.files.lock().unwrap().contains_key("/d/new"));
    }
}

#[test]
fn an_address_abroad_is_refused_before_anything_is_sent() {
    let Err(OpenError::Refused { why, text, .. }) = open(&start(Lie::Abroad)) else { panic!("it was opened") };
    assert_eq!(why, Refused::Request);
    assert!(text.contains("192.0.2.1") && text.contains("redirect_hosts"), "{text}");
}

/// With a password and without one.
#[test]
fn who_wants_certificates_is_declined_with_what_to_do() {
    let fake = start(Lie::Certificates);
    let mine = Location::Url { scheme: "ftp".into(), rest: format!("me@127.0.0.1:{}/d/", fake.port).into_bytes() };
    for location in [at(&fake, "/d/"), mine] {
        let opened = servers().source(&[location], &TransferOptions::default());
        let Err(OpenError::Refused { why, text, advice }) = opened else { panic!("it was opened") };
        assert_eq!(why, Refused::Keys);
        assert!(text.contains("asks for GSI") && advice.contains("davs://"), "{text} {advice}");
        assert!(text.contains("530 Must perform GSSAPI authentication"), "{text}");
    }
}

#[test]
fn what_is_no_reply_ends_the_conversation() {
    for lie in [Lie::Unasked, Lie::Endless] {
        let Err(OpenError::Refused { text, .. }) = open(&start(lie)).and_then(|_| read_again(lie)) else {
            panic!("{lie:?} is believed")
        };
        // One that comes late stands where another one is expected.
        let is_told = text.contains("does not keep to the protocol") || text.contains("200 and more");
        assert!(is_told, "{lie:?}: {text}");
    }
}

/// A reply too many shows when nothing is asked.
fn read_again(lie: Lie) -> Result<(), OpenError> {
    let error = read(&start(lie)).err();
    let text = error.map_or_else(|| "it was believed".to_owned(), |error| error.to_string());
    Err(OpenError::Refused { why: Refused::Unreachable, text, advice: String::new() })
}

#[test]
fn names_that_climb_are_told_and_never_taken() {
    let source = open(&start(Lie::Names)).ok().unwrap().source;
    let (mut names, mut failed) = (Vec::new(), 0);
    source
        .scan(&mut |one| {
            match one {
                Found::Object(object) => names.push(object.entry.name.to_string()),
                Found::Failed(_) => failed += 1,
            }
            true
        })
        .unwrap();
    assert_eq!((names, failed), (vec!["file".to_owned()], 3));
}

#[test]
fn a_listing_that_the_server_cut_is_none() {
    let fake = start(Lie::Truncated);
    let error = scan(&*open(&fake).ok().unwrap().source).unwrap_err();
    assert!(error.to_string().contains("Output truncated to 1 matches"), "{error}");
    let (mut removed, mut failed) = (0, 0);
    sink(&fake).prune(&mut Prune {
        directories: &[ObjectId::ROOT],
        is_listed: &|_, _| false,
        is_listed_alike: &|_, _| false,
        fate: &|_, _| Fate::Remove,
        is_rehearsal: false,
        removed: &mut |_, _| removed += 1,
        failed: &mut |_| failed += 1,
        goes_on: &|| true,
    });
    assert_eq!((removed, failed), (0, 1));
}

#[test]
fn a_link_to_a_directory_is_a_link_where_only_listings_tell_so() {
    let fake = start(Lie::Plain);
    let error = sink(&fake).make_directory(&entry(1, "link", Kind::Directory, 0)).unwrap_err();
    assert_eq!(error.kind, FailureKind::InTheWay, "{error}");
    let shelf = servers().shelf(&at(&fake, LINK), How::Take).ok().unwrap();
    let tally = shelf.remove_tree(&|| false, &mut |_, error| panic!("{error}"));
    assert_eq!(tally.failed, 0);
    assert_eq!([fake.heard("DELE"), fake.heard("RMD")].concat(), [format!("DELE {LINK}")]);
    // What lies behind it was not named.
    let Err(OpenError::Source { error, .. }) = servers().shelf(&at(&fake, &format!("{LINK}/")), How::Take) else {
        panic!("it was taken")
    };
    assert!(error.kind == FailureKind::InTheWay && error.to_string().contains("is a symbolic link"), "{error}");
}

/// Of lines too that tell of nothing: what is kept of each is far longer.
#[test]
fn a_directory_of_more_lines_than_it_may_have_names_is_not_looked_through_for_a_link() {
    let fake = start(Lie::Crammed);
    let shelf = servers().shelf(&at(&fake, "/d"), How::Look).ok().unwrap();
    let error = shelf.look().unwrap_err();
    assert!(error.to_string().contains("more than 2,000,000 names"), "{error}");
}

#[test]
fn a_size_that_no_file_has_fails_its_file_alone() {
    let fake = start(Lie::Sizes);
    let (mut sizes, mut failed) = (Vec::new(), Vec::new());
    let source = open(&fake).ok().unwrap().source;
    source
        .scan(&mut |one| {
            match one {
                Found::Object(object) => sizes.push(object.entry.size_bytes()),
                Found::Failed(failure) => failed.push(failure.message),
            }
            true
        })
        .unwrap();
    assert_eq!(sizes, [CONTENT.len() as u64, i64::MAX as u64]);
    let count = |words: &str| failed.iter().filter(|message| message.contains(words)).count();
    let are_told = (failed.len(), count("which no file has"), count("which tells of nothing"));
    assert_eq!(are_told, (SIZES.len() - 1, 2, SIZES.len() - 3), "{failed:?}");
    // A listing still works, although the sum of these sizes does not fit into 64 bits.
    let shelf = servers().shelf(&at(&fake, "/d"), How::Look).ok().unwrap();
    let mut tally = Tally::default();
    shelf.walk(9, &Slots::new(100), &mut |found| {
        match found {
            Visit::Object { status, .. } => tally.count(&status),
            Visit::Failed { .. } => tally.failed += 1,
            _ => {}
        }
        true
    });
    assert_eq!((tally.files, tally.bytes, tally.failed), (4, u64::MAX, SIZES.len() as u64 - 3));
}

/// More of them than are told one by one.
#[test]
fn a_link_of_which_nothing_says_where_it_leads_is_told_and_never_copied() {
    let source = open(&start(Lie::Aimless)).ok().unwrap().source;
    let (mut names, mut failed) = (Vec::new(), 0);
    source
        .scan(&mut |one| {
            match one {
                Found::Object(object) => names.push(object.entry.name.to_string()),
                Found::Failed(_) => failed += 1,
            }
            true
        })
        .unwrap();
    assert_eq!((names, failed), (vec!["file".to_owned()], 100));
}

/// Many are sent by eight threads, three behind one another on each data connection.
#[test]
fn what_was_confirmed_before_its_conversation_was_lost_is_compared_and_gets_its_time() {
    const FILES: u64 = 24;
    let fake = start(Lie::Parting);
    let sink = sink(&fake);
    let entries: Vec<Entry> = (1..=FILES).map(|number| entry(number, &format!("new{number}"), Kind::File, 4)).collect();
    let staged: Vec<Staged> = entries.iter().map(|entry| stage(&*sink, entry, b"some")).collect();
    sink.sync_group(&mut staged.iter().copied()).unwrap();
    assert!(fake.heard("STOR").iter().any(|line| line.ends_with("-again")), "no conversation was lost");
    assert_eq!((fake.heard("CKSM").len() as u64, fake.heard("MFMT").len() as u64), (FILES, FILES));
    for (entry, staged) in entries.iter().zip(staged) {
        sink.publish(entry, staged).unwrap();
    }
    sink.close();
    let files = fake.files.lock().unwrap();
    assert_eq!(files.len() as u64, FILES + 1, "{:?}", files.keys());
}

/// More than are sent and published together.
#[test]
fn of_many_small_files_each_gets_its_name_and_is_told_by_its_place() {
    const FILES: usize = 300;
    let fake = start(Lie::Parting);
    let sink = sink(&fake);
    let entry = |number: usize| entry(number as u64, &format!("new{number}"), Kind::File, 4);
    let entries: Vec<Entry> = (1..=FILES).map(entry).collect();
    let staged: Vec<Staged> = entries.iter().map(|entry| stage(&*sink, entry, b"some")).collect();
    let group = entries.iter().zip(&staged).map(|(entry, staged)| ToPublish { entry, staged: *staged });
    let mut told = Vec::new();
    sink.publish_group(&group.collect::<Vec<_>>(), &mut |place, published| {
        published.unwrap();
        told.push(place);
        true
    });
    assert_eq!(told, (0..FILES).collect::<Vec<_>>());
    let files = fake.files.lock().unwrap();
    assert!(entries.iter().all(|entry| files[&format!("/d/{}", entry.name)] == b"some"), "{:?}", files.keys());
}

#[test]
fn what_a_lost_conversation_took_along_may_be_sent_again() {
    let fake = start(Lie::Lost);
    let sink = sink(&fake);
    let new = entry(1, "new", Kind::File, 4);
    let staged = stage(&*sink, &new, b"some");
    let error = sink.sync_group(&mut std::iter::once(staged)).unwrap_err();
    assert!(error.to_string().contains("was lost"), "{error}");
    sink.discard(staged);
    let again = stage(&*sink, &new, b"some");
    sink.sync_group(&mut std::iter::once(again)).unwrap();
    sink.publish(&new, again).unwrap();
    assert_eq!(fake.files.lock().unwrap()["/d/new"], b"some");
}

/// The server says what lies there in the end, whoever sent it.
#[test]
fn a_resumed_file_is_read_back_and_compared_as_a_whole() {
    let fake = start(Lie::Sums);
    let sink = sink(&fake);
    let new = entry(1, "new", Kind::File, 20);
    let (staged, _) = sink.begin(&new, "stem").unwrap();
    staged.write_at(0, CONTENT).unwrap();
    staged.append_journal(b"journal").unwrap();
    drop(staged);
    let (staged, journal) = sink.begin(&new, "stem").unwrap();
    assert_eq!(journal, b"journal");
    assert!(!staged.outlasts_its_host(), "nothing was synced there");
    let mut found = [0; 10];
    assert_eq!((staged.read_at(0, &mut found).unwrap(), &found[..]), (10, CONTENT));
    staged.write_at(10, CONTENT).unwrap();
    staged.publish(&new, PublishRule::NoReplace).unwrap();
    assert_eq!(fake.heard("CKSM").len(), 1);
    assert_eq!(fake.files.lock().unwrap()["/d/new"], [CONTENT, CONTENT].concat());
}

#[test]
fn a_lane_that_has_nothing_to_read_holds_up_no_other() {
    let fake = start(Lie::Crowded);
    let source = open(&fake).ok().unwrap().source;
    let object = scan(&*source).unwrap().remove(0);
    let mut lanes: Vec<_> = (0..3).map(|_| source.lane()).collect();
    let mut files = Vec::new();
    for (start, end) in [(0, 5), (5, 10)] {
        for (number, lane) in lanes.iter_mut().enumerate() {
            if start == 0 {
                files.push(lane.open(&object).unwrap());
            }
            let (mut block, mut found) = ([0; 100], Vec::new());
            let mut each = |bytes: &[u8]| {
                found.extend_from_slice(bytes);
                true
            };
            lane.read_extent(&*files[number], Extent { start, end }, &mut block, &mut each).unwrap();
            assert_eq!(found, CONTENT[start as usize..end as usize], "lane {number} from {start}");
        }
    }
}

/// By itself each takes a turn at least.
#[test]
fn small_files_of_a_gridftp_server_come_behind_one_another() {
    const FILES: usize = 127;
    let fake = start(Lie::Parting);
    put_small(&fake, FILES);
    let source = open(&fake).ok().unwrap().source;
    let found = scan(&*source).unwrap();
    let before = fake.turns.load(SeqCst);
    let read: Vec<_> = read_ahead(&*source, &found).into_iter().map(Result::unwrap).collect();
    let turns = fake.turns.load(SeqCst) - before;
    assert_eq!(read, small(FILES));
    assert!(turns < FILES / 2, "{turns} turns");
}

#[test]
fn what_became_of_one_small_file_is_told_of_it_alone() {
    const FILES: usize = 40;
    let fake = start(Lie::Parting);
    put_small(&fake, FILES);
    let source = open(&fake).ok().unwrap().source;
    let found = scan(&*source).unwrap();
    let mut files = fake.files.lock().unwrap();
    files.remove("/d/f003").unwrap();
    files.insert("/d/f020".to_owned(), vec![7; 20]);
    drop(files);
    let expected = small(FILES);
    for (number, read) in read_ahead(&*source, &found).into_iter().enumerate() {
        match number {
            3 => assert_eq!(read.unwrap_err().kind, FailureKind::NotFound),
            20 => assert_eq!(read.unwrap(), (vec![7; 10], false)),
            _ => assert_eq!(read.unwrap(), expected[number]),
        }
    }
}

#[test]
fn a_gridftp_server_that_cannot_connect_to_this_host_is_told_to_for_one_group_alone() {
    const FILES: usize = 40;
    let fake = start(Lie::Walled);
    put_small(&fake, FILES);
    let source = open(&fake).ok().unwrap().source;
    let found = scan(&*source).unwrap();
    let told = || {
        let read: Vec<_> = read_ahead(&*source, &found).into_iter().map(Result::unwrap).collect();
        assert_eq!(read, small(FILES));
        fake.heard("EPRT").len()
    };
    let first = told();
    assert!(first > 0, "it was not told");
    assert_eq!(told(), first);
}

/// Whether it refuses to read says nothing of whether it connects.
#[test]
fn a_gridftp_server_that_refuses_a_whole_group_at_first_is_told_to_connect_for_the_next_one() {
    const FILES: usize = 40;
    let fake = start(Lie::Parting);
    put_small(&fake, FILES);
    let source = open(&fake).ok().unwrap().source;
    let found = scan(&*source).unwrap();
    let hidden = std::mem::take(&mut *fake.files.lock().unwrap());
    for read in read_ahead(&*source, &found) {
        assert_eq!(read.unwrap_err().kind, FailureKind::NotFound);
    }
    *fake.files.lock().unwrap() = hidden;
    let before = fake.heard("EPRT").len();
    let read: Vec<_> = read_ahead(&*source, &found).into_iter().map(Result::unwrap).collect();
    assert_eq!(read, small(FILES));
    assert!(before > 0 && fake.heard("EPRT").len() > before, "it is not told to connect any more");
}

#[test]
fn a_gridftp_server_that_closes_its_data_connection_after_each_file_is_told_to_connect_for_one_group_alone() {
    const FILES: usize = 40;
    let fake = start(Lie::Closing);
    put_small(&fake, FILES);
    let source = open(&fake).ok().unwrap().source;
    let found = scan(&*source).unwrap();
    let told = || {
        let read: Vec<_> = read_ahead(&*source, &found).into_iter().map(Result::unwrap).collect();
        assert_eq!(read, small(FILES));
        fake.heard("EPRT").len()
    };
    let first = told();
    assert!(first > 0, "it was not told");
    assert_eq!(told(), first);
}

#[test]
fn nothing_is_believed_where_somebody_else_connects_too() {
    const FILES: usize = 40;
    let fake = start(Lie::Meddled);
    put_small(&fake, FILES);
    let source = open(&fake).ok().unwrap().source;
    let found = scan(&*source).unwrap();
    let read: Vec<_> = read_ahead(&*source, &found).into_iter().map(Result::unwrap).collect();
    assert!(!fake.heard("EPRT").is_empty(), "nobody was asked to connect");
    assert_eq!(read, small(FILES));
}

/// A look, the address of a data connection, and a transfer take the others.
#[test]
fn another_conversation_with_a_gridftp_server_begins_in_one_turn() {
    let fake = start(Lie::Parting);
    let source = open(&fake).ok().unwrap().source;
    let object = scan(&*source).unwrap().remove(0);
    let mut lanes = [source.lane(), source.lane()];
    let mut before = 0;
    for lane in &mut lanes {
        before = fake.turns.load(SeqCst);
        let file = lane.open(&object).unwrap();
        let half = Extent { start: 0, end: 5 };
        assert_eq!(lane.read_extent(&*file, half, &mut [0; 100], &mut |_| true).unwrap(), 5);
    }
    assert_eq!(fake.turns.load(SeqCst) - before, 4);
}

#[test]
fn what_is_sent_without_an_end_is_not_read_to_it() {
    let fake = start(Lie::Torrent);
    let sink = sink(&fake);
    let new = entry(1, "new", Kind::File, CONTENT.len());
    let is_told = |error: &store::Error| error.to_string().contains("sends more than the 10 bytes");
    let staged = stage(&*sink, &new, CONTENT);
    let error = sink.reread(&new, staged, &mut |_| ()).unwrap_err();
    assert!(is_told(&error), "{error}");
    sink.discard(staged);
    let (staged, _) = sink.begin(&new, "stem").unwrap();
    staged.write_at(0, CONTENT).unwrap();
    let error = staged.reread(&mut |_| ()).unwrap_err();
    assert!(is_told(&error), "{error}");
    staged.discard();
    let mut files = fake.files.lock().unwrap();
    for name in ["/d/.thalweg-staging-ftp-stem", "/d/.thalweg-staging-ftp-stem.journal"] {
        files.insert(name.to_owned(), CONTENT.to_vec());
    }
    drop(files);
    let error = sink.begin(&new, "stem").err().unwrap();
    assert!(is_told(&error), "{error}");
}
