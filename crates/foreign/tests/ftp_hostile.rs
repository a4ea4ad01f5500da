//! FTP servers that lie, against what is read from them and written to them.

use foreign::ftp::FtpServers;
use foreign::sftp::{Dial, Host, Line};
use model::{Entry, FailureKind, Generation, Kind, Location, Name, ObjectId, Timestamp, TransferOptions};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use store::open::{OpenSource, Opener, Refused, Rights, Shape, SinkRequest};
use store::{Found, OpenError, PublishRule};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    Nothing,
    /// Data connections go to another host.
    Abroad,
    /// A download ends in the middle, and the server says so afterwards.
    Cut,
    /// An upload is said to be complete before its end.
    Early,
    /// Of what was sent the last byte is not kept.
    Short,
    Certificates,
    /// A reply that nobody asked for.
    Unasked,
    /// A line of a reply that never ends.
    Endless,
    /// Names that climb, and names that stand there twice.
    Names,
    /// It does not say whether a name is taken.
    Blind,
}

/// More than sockets buffer on the way.
const BYTES: usize = 24 << 20;
const CONTENT: &[u8] = b"0123456789";
type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

struct Fake {
    port: u16,
    files: Files,
}

fn start(lie: Lie) -> Fake {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let files: Files = Arc::new(Mutex::new([("/d/file".to_owned(), CONTENT.to_vec())].into()));
    let served = files.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let files = served.clone();
            std::thread::spawn(move || drop(serve(&stream, lie, &files)));
        }
    });
    Fake { port, files }
}

fn facts(files: &Files, path: &str) -> String {
    match files.lock().unwrap().get(path) {
        Some(bytes) => format!("type=file;size={};modify=20200101000000;", bytes.len()),
        None => "type=dir;modify=20200101000000;".to_owned(),
    }
}

fn listed(lie: Lie, files: &Files) -> String {
    let odd = if lie == Lie::Names {
        "type=file;size=1; ../climbs\r\ntype=file;size=1; a/b\r\ntype=file;size=1; file\r\n"
    } else {
        ""
    };
    let names: Vec<String> = files.lock().unwrap().keys().cloned().collect();
    let line = |path: &String| format!("{} {}\r\n", facts(files, path), path.trim_start_matches("/d/"));
    format!("type=cdir; .\r\n{odd}{}", names.iter().map(line).collect::<String>())
}

fn serve(stream: &TcpStream, lie: Lie, files: &Files) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream).lines();
    let (mut passive, mut from, mut renamed) = (None::<TcpListener>, 0, String::new());
    out.write_all(b"220 ready\r\n")?;
    while let Some(Ok(line)) = lines.next() {
        let (word, path) = line.split_once(' ').unwrap_or((&line, ""));
        let data = |passive: &mut Option<TcpListener>| Ok::<_, std::io::Error>(passive.take().unwrap().accept()?.0);
        let is_there = path.is_empty() || path == "/d" || path == "/" || files.lock().unwrap().contains_key(path);
        match word {
            "USER" if lie == Lie::Certificates => out.write_all(b"530 Must perform GSSAPI authentication\r\n")?,
            "USER" => out.write_all(b"331 who?\r\n")?,
            "FEAT" if lie == Lie::Endless => out.write_all(&[b'2'; 64 << 10])?,
            "FEAT" => out.write_all(b"211-Features\r\n MLST size*;\r\n MFMT\r\n211 End\r\n")?,
            "NOOP" | "TYPE" if lie == Lie::Unasked => out.write_all(b"200 yes\r\n200 and more\r\n")?,
            "EPSV" if lie == Lie::Abroad => out.write_all(b"500 what?\r\n")?,
            "PASV" => out.write_all(b"227 Passive (192,0,2,1,4,1)\r\n")?,
            "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                write!(out, "229 (|||{}|)\r\n", listener.local_addr()?.port())?;
                passive = Some(listener);
            }
            "REST" => {
                from = path.parse().unwrap();
                out.write_all(b"350 ok\r\n")?;
            }
            _ if !is_there && !["STOR", "RNTO", "MKD", "PASS", "TYPE", "MFMT", "NOOP"].contains(&word) => {
                out.write_all(b"550 No such file\r\n")?;
            }
            "MLST" if lie == Lie::Blind && path == "/d/new" => out.write_all(b"451 not now\r\n")?,
            "MLST" => write!(out, "250-\r\n {} {path}\r\n250 End\r\n", facts(files, path))?,
            "SIZE" => {
                let cut = usize::from(lie == Lie::Short);
                let size = files.lock().unwrap()[path].len() - cut;
                write!(out, "213 {size}\r\n")?;
            }
            "MLSD" => {
                out.write_all(b"150 here\r\n")?;
                data(&mut passive)?.write_all(listed(lie, files).as_bytes())?;
                out.write_all(b"226 done\r\n")?;
            }
            "RETR" => {
                let bytes = files.lock().unwrap()[path][std::mem::take(&mut from)..].to_vec();
                let sent = if lie == Lie::Cut { &bytes[..bytes.len() / 2] } else { &bytes[..] };
                out.write_all(b"150 here\r\n")?;
                data(&mut passive)?.write_all(sent)?;
                out.write_all(if lie == Lie::Cut { b"426 cut\r\n" } else { b"226 done\r\n" })?;
            }
            "STOR" => {
                out.write_all(b"150 give\r\n")?;
                if lie == Lie::Early {
                    out.write_all(b"226 done\r\n")?;
                    // Nothing is taken yet of more than all buffers hold.
                    std::thread::sleep(std::time::Duration::from_millis(500));
                }
                let (mut bytes, mut data) = (Vec::new(), data(&mut passive)?);
                data.read_to_end(&mut bytes)?;
                files.lock().unwrap().insert(path.to_owned(), bytes);
                if lie != Lie::Early {
                    out.write_all(b"226 done\r\n")?;
                }
            }
            "RNFR" => {
                renamed = path.to_owned();
                out.write_all(b"350 to?\r\n")?;
            }
            "RNTO" => {
                let mut files = files.lock().unwrap();
                let bytes = files.remove(&renamed).unwrap();
                files.insert(path.to_owned(), bytes);
                out.write_all(b"250 done\r\n")?;
            }
            "DELE" => {
                files.lock().unwrap().remove(path);
                out.write_all(b"250 done\r\n")?;
            }
            _ => out.write_all(b"250 fine\r\n")?,
        }
    }
    Ok(())
}

struct NoSsh;

impl Dial for NoSsh {
    fn dial(&self, _: &Host) -> Result<Line, OpenError> {
        Err(OpenError::Refused { why: Refused::Unreachable, text: "no ssh".into(), advice: String::new() })
    }
}

fn open(fake: &Fake) -> Result<OpenSource, OpenError> {
    let rest = format!("127.0.0.1:{}/d/", fake.port).into_bytes();
    let servers = FtpServers::new(Vec::new(), Arc::new(NoSsh));
    servers.source(&[Location::Url { scheme: "ftp".into(), rest }], &TransferOptions::default())
}

fn read(fake: &Fake) -> store::Result<Vec<u8>> {
    let source = open(fake).ok().unwrap().source;
    let mut found = Vec::new();
    source.scan(&mut |one| {
        found.extend(if let Found::Object(object) = one { Some(object) } else { None });
        true
    })?;
    let mut buffer = [0; 100];
    let count = source.lane().read_whole(&found[0], &mut buffer)?.0;
    Ok(buffer[..count].to_vec())
}

/// Sends a file, the way of small ones or that of large ones, to a name that nothing has.
fn write(fake: &Fake, is_large: bool) -> store::Result<()> {
    let rest = format!("127.0.0.1:{}/d/", fake.port).into_bytes();
    let options = TransferOptions::default();
    let request =
        SinkRequest { rights: Rights::Write, shape: Shape::Tree, is_nameless: false, is_own: false, options: &options };
    let servers = FtpServers::new(Vec::new(), Arc::new(NoSsh));
    let sink = servers.sink(&Location::Url { scheme: "ftp".into(), rest }, &request).ok().unwrap().sink;
    let bytes = vec![7; BYTES];
    let modified = Timestamp { seconds: 1_600_000_000, nanoseconds: 0 };
    let generation = Generation { size_bytes: bytes.len() as u64, modified, ..Generation::default() };
    let name = Name::new(b"new").unwrap();
    let (id, parent) = (ObjectId(1), ObjectId::ROOT);
    let entry = Entry { id, parent, name, kind: Kind::File, mode: 0o644, generation, attributes: None };
    if is_large {
        let (staged, _) = sink.begin(&entry, "stem")?;
        let sent = staged.write_at(0, &bytes).and_then(|()| staged.publish(&entry, PublishRule::NoReplace, false));
        return sent.inspect_err(|_| staged.discard());
    }
    let mut lane = sink.lane(false)?;
    lane.create(&entry, PublishRule::NoReplace)?;
    lane.write(&bytes)?;
    let staged = lane.seal(&entry, false)?;
    sink.publish(&entry, staged)
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

#[test]
fn who_wants_certificates_is_declined_with_what_to_do() {
    let Err(OpenError::Refused { why, text, advice }) = open(&start(Lie::Certificates)) else {
        panic!("it was opened")
    };
    assert_eq!(why, Refused::Keys);
    assert!(text.contains("asks for GSI") && advice.contains("davs://"), "{text} {advice}");
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
