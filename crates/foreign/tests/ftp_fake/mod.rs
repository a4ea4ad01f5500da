//! An FTP server that lies, each time in one way.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
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
    /// Of 150 links it does not tell where they lead to.
    Aimless,
    /// It does not say whether a name is taken.
    Blind,
    /// Names are left out of a listing, and the server says so.
    Truncated,
    /// It has hardly more than RFC 959, and `LINK`.
    Plain,
    /// As `Plain`, and its root lists more lines than a directory may have names.
    Crammed,
    /// It computes checksums.
    Sums,
    /// A GridFTP server, which loses a conversation once two of the files in it are confirmed, the first time.
    Parting,
    /// A GridFTP server that cannot connect to anybody.
    Walled,
    /// A GridFTP server beside which somebody else connects first, and sends something else.
    Meddled,
    /// It loses the conversation of the first upload.
    Lost,
    /// A GridFTP server that closes its data connection after each file, and opens no other one.
    Closing,
    /// Sizes that no file has, or that are none, and the longest that a file may have.
    Sizes,
    /// It takes two conversations at once, and refuses the third.
    Crowded,
    /// What it sends of a file goes on for ever, or nearly.
    Torrent,
}

/// What `Lie::Sizes` tells of files.
pub const SIZES: [&str; 10] = [
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "-9223372036854775808",
    "+1",
    "1e3",
    "many",
    "",
];
pub const CONTENT: &[u8] = b"0123456789";
/// A link to a directory with a file in it, which only a listing of `/d` tells from a directory.
pub const LINK: &str = "/d/link";
pub type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

pub struct Fake {
    pub port: u16,
    pub files: Files,
    /// All commands.
    pub heard: Arc<Mutex<Vec<String>>>,
    /// How often a command came while it had none.
    pub turns: Arc<AtomicUsize>,
}

impl Fake {
    pub fn heard(&self, word: &str) -> Vec<String> {
        let is_it = |line: &&String| line.split(' ').next() == Some(word);
        self.heard.lock().unwrap().iter().filter(is_it).cloned().collect()
    }
}

struct Shared {
    lie: Lie,
    files: Files,
    heard: Arc<Mutex<Vec<String>>>,
    turns: Arc<AtomicUsize>,
    has_lied: AtomicBool,
}

impl Shared {
    fn is_grid(&self) -> bool {
        matches!(self.lie, Lie::Parting | Lie::Walled | Lie::Meddled | Lie::Closing)
    }
}

pub fn start(lie: Lie) -> Fake {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let files: Files = Arc::new(Mutex::new([("/d/file".to_owned(), CONTENT.to_vec())].into()));
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let turns: Arc<AtomicUsize> = Arc::default();
    let has_lied = AtomicBool::new(false);
    let shared = Shared { lie, files: files.clone(), heard: heard.clone(), turns: turns.clone(), has_lied };
    let shared = Arc::new(shared);
    std::thread::spawn(move || {
        for (number, mut stream) in listener.incoming().flatten().enumerate() {
            if lie == Lie::Crowded && number == 2 {
                let _ = stream.write_all(b"421 too many\r\n");
                continue;
            }
            let shared = shared.clone();
            std::thread::spawn(move || drop(serve(&stream, &shared)));
        }
    });
    Fake { port, files, heard, turns }
}

fn adler(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

fn serve(stream: &TcpStream, shared: &Shared) -> Result<()> {
    let mut talk = Talk {
        shared,
        out: stream.try_clone()?,
        passive: None,
        caller: None,
        channel: None,
        is_extended: false,
        from: 0,
        renamed: String::new(),
        entered: String::new(),
        stored: 0,
    };
    talk.say("220 ready")?;
    let mut reader = BufReader::new(stream);
    loop {
        let is_turn = reader.buffer().is_empty();
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end_matches(['\r', '\n']);
        shared.turns.fetch_add(usize::from(is_turn), SeqCst);
        shared.heard.lock().unwrap().push(line.to_owned());
        let (word, path) = line.split_once(' ').unwrap_or((line, ""));
        talk.answer(word, path)?;
    }
}

/// One conversation.
struct Talk<'a> {
    shared: &'a Shared,
    out: TcpStream,
    passive: Option<TcpListener>,
    /// The port that it is to connect to.
    caller: Option<u16>,
    /// A data connection of MODE E, which stays.
    channel: Option<TcpStream>,
    is_extended: bool,
    from: usize,
    renamed: String,
    entered: String,
    stored: usize,
}

impl Talk<'_> {
    fn say(&mut self, text: &str) -> Result<()> {
        self.out.write_all(format!("{text}\r\n").as_bytes())
    }

    fn data(&mut self) -> Result<TcpStream> {
        let passive = self.passive.take().ok_or_else(|| Error::other("nobody asked for a data connection"))?;
        Ok(passive.accept()?.0)
    }

    fn file(&self, path: &str) -> Option<Vec<u8>> {
        self.shared.files.lock().unwrap().get(path).cloned()
    }

    fn is_there(&self, path: &str) -> bool {
        let is_behind = self.shared.lie == Lie::Plain && path.starts_with(LINK);
        matches!(path, "" | "/d" | "/") || is_behind || self.file(path).is_some()
    }

    /// The first to ask is told yes.
    fn lies_once(&self, lie: Lie) -> bool {
        self.shared.lie == lie && !self.shared.has_lied.swap(true, SeqCst)
    }

    fn answer(&mut self, word: &str, path: &str) -> Result<()> {
        const OF_NOTHING: [&str; 9] = ["STOR", "RNTO", "MKD", "PASS", "TYPE", "MFMT", "NOOP", "MODE", "LIST"];
        let lie = self.shared.lie;
        match word {
            "USER" if lie == Lie::Certificates => self.say("530 Must perform GSSAPI authentication"),
            "USER" => self.say("331 who?"),
            "FEAT" if lie == Lie::Endless => self.out.write_all(&[b'2'; 64 << 10]),
            "FEAT" if matches!(lie, Lie::Plain | Lie::Crammed) => self.say("502 what?"),
            "FEAT" => {
                let sums = if matches!(lie, Lie::Sums | Lie::Parting) { " CKSM ADLER32:10;\r\n" } else { "" };
                let grid = if self.shared.is_grid() { " SPAS\r\n" } else { "" };
                self.say(&format!("211-Features\r\n MLST size*;\r\n MFMT\r\n{sums}{grid}211 End"))
            }
            "NOOP" | "TYPE" if lie == Lie::Unasked => self.say("200 yes\r\n200 and more"),
            "EPSV" if lie == Lie::Abroad => self.say("500 what?"),
            "PASV" => self.say("227 Passive (192,0,2,1,4,1)"),
            "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                self.passive = Some(listener);
                self.say(&format!("229 (|||{port}|)"))
            }
            "EPRT" => {
                let port = path.split('|').nth(3).and_then(|port| port.parse().ok());
                (self.caller, self.channel) = (port, None);
                self.say("200 ok")
            }
            "REST" => {
                self.from = path.parse().unwrap();
                self.say("350 ok")
            }
            "CKSM" => {
                let sum = path.splitn(4, ' ').nth(3).and_then(|path| self.file(path)).map(|bytes| adler(&bytes));
                self.say(&sum.map_or("550 No such file".to_owned(), |sum| format!("213 {sum:08x}")))
            }
            _ if !self.is_there(path) && !OF_NOTHING.contains(&word) => self.say("550 No such file"),
            "MODE" => {
                (self.is_extended, self.channel) = (path == "E", None);
                self.say("200 ok")
            }
            "MLST" if lie == Lie::Blind && path == "/d/new" => self.say("451 not now"),
            "MLST" => {
                let facts = facts(self.file(path).as_deref());
                self.say(&format!("250-\r\n {facts} {path}\r\n250 End"))
            }
            "SIZE" | "MDTM" | "CWD" => self.look(word, path),
            "MLSD" => self.list(&listed(self.shared)),
            "LIST" => self.list(&printed(self.shared, &self.entered)),
            "RETR" if self.is_extended => self.retrieve_blocks(path),
            "RETR" => self.retrieve(path),
            "STOR" if self.is_extended => self.store_blocks(path),
            "STOR" => self.store(path),
            "RNFR" => {
                self.renamed = path.to_owned();
                self.say("350 to?")
            }
            "RNTO" => {
                let mut files = self.shared.files.lock().unwrap();
                let bytes = files.remove(&self.renamed).unwrap();
                files.insert(path.to_owned(), bytes);
                drop(files);
                self.say("250 done")
            }
            "DELE" => {
                self.shared.files.lock().unwrap().remove(path);
                self.say("250 done")
            }
            _ => self.say("250 fine"),
        }
    }

    fn look(&mut self, word: &str, path: &str) -> Result<()> {
        match (word, self.file(path)) {
            ("CWD", None) => {
                self.entered = path.to_owned();
                self.say("250 there")
            }
            ("SIZE", Some(bytes)) => {
                let size = bytes.len() - usize::from(self.shared.lie == Lie::Short);
                self.say(&format!("213 {size}"))
            }
            ("MDTM", Some(_)) => self.say("213 20200101000000"),
            _ => self.say("550 It is not of that kind"),
        }
    }

    fn list(&mut self, text: &str) -> Result<()> {
        self.say("150 here")?;
        self.data()?.write_all(text.as_bytes())?;
        self.say(match self.shared.lie {
            Lie::Truncated => "226-Options: -a -l\r\n226 Output truncated to 1 matches",
            _ => "226 done",
        })
    }

    fn retrieve(&mut self, path: &str) -> Result<()> {
        let bytes = self.file(path).unwrap_or_default()[std::mem::take(&mut self.from)..].to_vec();
        self.say("150 here")?;
        let mut data = self.data()?;
        match self.shared.lie {
            Lie::Cut => {
                data.write_all(&bytes[..bytes.len() / 2])?;
                drop(data);
                self.say("426 cut")
            }
            Lie::Torrent => {
                let is_cut = (0..1024).any(|_| data.write_all(&[7; 64 << 10]).is_err());
                drop(data);
                self.say(if is_cut { "426 cut" } else { "226 done" })
            }
            _ => {
                data.write_all(&bytes)?;
                drop(data);
                self.say("226 done")
            }
        }
    }

    /// In MODE E, over a connection that it opens and keeps.
    fn retrieve_blocks(&mut self, path: &str) -> Result<()> {
        let lie = self.shared.lie;
        let Some(port) = self.caller.filter(|_| lie != Lie::Walled) else { return self.say("425 It cannot connect") };
        let call = || TcpStream::connect(("127.0.0.1", port));
        let mut other = None;
        let mut channel = match self.channel.take() {
            Some(channel) => channel,
            None => {
                if lie == Lie::Meddled {
                    other.insert(call()?).write_all(&to_blocks(b"not theirs"))?;
                }
                match call() {
                    Ok(channel) => channel,
                    Err(_) => return self.say("425 It cannot connect"),
                }
            }
        };
        self.say("150 here")?;
        channel.write_all(&to_blocks(&self.file(path).unwrap_or_default()))?;
        self.channel = Some(channel).filter(|_| lie != Lie::Closing);
        self.say("226 done")
    }

    fn store(&mut self, path: &str) -> Result<()> {
        self.say("150 give")?;
        let is_early = self.shared.lie == Lie::Early;
        if is_early {
            self.say("226 done")?;
            // Nothing is taken yet of more than all buffers hold.
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        let mut data = self.data()?;
        if self.lies_once(Lie::Lost) {
            return Err(Error::other("it hangs up"));
        }
        let mut bytes = self.file(path).unwrap_or_default();
        bytes.truncate(std::mem::take(&mut self.from));
        data.read_to_end(&mut bytes)?;
        self.shared.files.lock().unwrap().insert(path.to_owned(), bytes);
        if is_early { Ok(()) } else { self.say("226 done") }
    }

    /// In MODE E.
    fn store_blocks(&mut self, path: &str) -> Result<()> {
        self.say("150 give")?;
        let mut channel = match self.channel.take() {
            Some(channel) => channel,
            None => self.data()?,
        };
        let bytes = of_blocks(&mut channel)?;
        self.shared.files.lock().unwrap().insert(path.to_owned(), bytes);
        self.say("226 done")?;
        self.stored += 1;
        if self.stored == 2 && self.lies_once(Lie::Parting) {
            // All of the next one is on its way by then.
            of_blocks(&mut channel)?;
            return Err(Error::other("it hangs up"));
        }
        self.channel = Some(channel);
        Ok(())
    }
}

/// A file that is not empty as one block, and its end.
fn to_blocks(bytes: &[u8]) -> Vec<u8> {
    let head = |descriptor: u8, count: usize, offset: u64| {
        [&[descriptor][..], &(count as u64).to_be_bytes(), &offset.to_be_bytes()].concat()
    };
    [head(0, bytes.len(), 0), bytes.to_vec(), head(72, 0, 1)].concat()
}

/// A file as blocks with their offsets, to its end.
fn of_blocks(channel: &mut TcpStream) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let mut head = [0; 17];
        channel.read_exact(&mut head)?;
        if head[0] & 64 != 0 {
            return Ok(bytes);
        }
        let mut block = vec![0; u64::from_be_bytes(head[1..9].try_into().unwrap()) as usize];
        channel.read_exact(&mut block)?;
        bytes.extend(block);
    }
}

fn facts(file: Option<&[u8]>) -> String {
    match file {
        Some(bytes) => format!("type=file;size={};modify=20200101000000;", bytes.len()),
        None => "type=dir;modify=20200101000000;".to_owned(),
    }
}

fn listed(shared: &Shared) -> String {
    let odd = match shared.lie {
        Lie::Names => "type=file;size=1; ../climbs\r\ntype=file;size=1; a/b\r\ntype=file;size=1; file\r\n".to_owned(),
        Lie::Sizes => SIZES
            .iter()
            .enumerate()
            .map(|(number, size)| format!("type=file;size={size};modify=20200101000000; s{number}\r\n"))
            .collect(),
        Lie::Aimless => (0..150).map(|number| format!("type=OS.unix=slink;size=1; link{number}\r\n")).collect(),
        _ => String::new(),
    };
    let files = shared.files.lock().unwrap();
    let line = |(path, bytes): (&String, &Vec<u8>)| format!("{} {}\r\n", facts(Some(bytes)), &path["/d/".len()..]);
    format!("type=cdir; .\r\n{odd}{}", files.iter().map(line).collect::<String>())
}

/// As `ls -l` prints it.
fn printed(shared: &Shared, directory: &str) -> String {
    let line = |kind: &str, size: usize, name: &str| format!("{kind} 1 0 0 {size} Nov 10 2020 {name}\r\n");
    match directory {
        "/d" => {
            let files = shared.files.lock().unwrap();
            let own = files.iter().map(|(path, bytes)| line("-rw-r--r--", bytes.len(), &path["/d/".len()..]));
            own.chain([line("lrwxrwxrwx", 2, "link -> /e")]).collect()
        }
        LINK => line("-rw-r--r--", 1, "inner"),
        _ if shared.lie == Lie::Crammed => "x\r\n".repeat(2_000_001),
        _ => line("drwxr-xr-x", 0, "d"),
    }
}
