//! Network paths that are reserved for a job by a program of the site: asked before the job begins, told when it is over.
//!
//! The program is run with one JSON object on its standard input and answers with one on its standard output:
//!
//! ```text
//! {"v":1,"do":"reserve","job":ID,"source":TEXT,"destination":TEXT,"rate":BYTES A SECOND or null,"class":WORD}
//! {"v":1,"do":"status"|"release","job":ID,"id":RESERVATION}
//!     -> {"id":RESERVATION,"state":"accepted"|"reserved"|"active"|"finished"|"failed","text":TEXT}
//! ```
//!
//! Invariants:
//! - The job does not begin before the reservation is `active`, and whatever was reserved is released, also where the job failed.
//! - What the program says is bounded in length and time; what it prints is shown escaped.
//!
//! Not here: reserving (`packaging/reservation` has a stub that fails on demand; programs for real networks are the site's).

use crate::error::{Error, Result, shown};
use model::Exit;
use model::name::Escaped;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const ANSWER_BYTES_MAX: u64 = 64 << 10;
const TEXT_CHARS_MAX: usize = 500;
/// How often a reservation that is not active yet is asked about, and a program that runs looked at.
const ASK_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A release is tried so often.
const RELEASES: u32 = 3;

/// The program, and how patient one is with it.
#[derive(Clone, Debug)]
pub struct Hook {
    pub program: PathBuf,
    /// For one answer.
    pub answer_within: Duration,
    /// For a reservation to become active.
    pub active_within: Duration,
}

impl Hook {
    pub fn new(program: impl Into<PathBuf>) -> Hook {
        let program = program.into();
        Hook { program, answer_within: Duration::from_secs(60), active_within: Duration::from_secs(600) }
    }
}

/// What is to be reserved.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub job: String,
    pub source: String,
    pub destination: String,
    /// Bytes a second.
    pub rate: Option<u64>,
    pub class: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Accepted,
    Reserved,
    Active,
    Finished,
    Failed,
}

#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    id: String,
    state: State,
    #[serde(default)]
    text: String,
}

/// A reservation that is active.
#[derive(Debug)]
pub struct Reserved {
    hook: Hook,
    job: String,
    id: String,
}

impl Hook {
    /// Reserves, and waits until the path is there.
    ///
    /// # Errors
    /// When it is refused, does not become active in time, or the program fails; nothing is left reserved as far as the program
    /// can be told. Code 130 where `is_stopped`.
    pub fn reserve(&self, wanted: &Wanted, is_stopped: &dyn Fn() -> bool) -> Result<Reserved> {
        let began = Instant::now();
        let Wanted { job, source, destination, rate, class } = wanted;
        let mut answer = self.ask(
            "reserve",
            &json!({"job": job, "source": source, "destination": destination, "rate": rate, "class": class}),
            is_stopped,
        )?;
        let reserved = Reserved { hook: self.clone(), job: job.clone(), id: answer.id.clone() };
        let given_up = loop {
            match answer.state {
                State::Active => return Ok(reserved),
                State::Failed | State::Finished => return Err(self.refused(&answer)),
                State::Accepted | State::Reserved if began.elapsed() >= self.active_within => {
                    let text = format!(
                        "the reservation {} is not active after {:?}",
                        Escaped(reserved.id.as_bytes()),
                        self.active_within
                    );
                    break Error::new(Exit::Temporary, text)
                        .hint("ask whoever runs the network; the same command tries again");
                }
                State::Accepted | State::Reserved => {}
            }
            let next = Instant::now() + ASK_EVERY;
            while Instant::now() < next && !is_stopped() {
                std::thread::park_timeout(LOOK_EVERY);
            }
            if is_stopped() {
                break Error::new(Exit::Interrupted, "stopped while the reservation was waited for");
            }
            match self.ask("status", &json!({"job": job, "id": reserved.id}), is_stopped) {
                Ok(now) => answer = now,
                Err(e) => break e,
            }
        };
        match reserved.release() {
            Ok(()) => Err(given_up),
            Err(e) => Err(Error { message: format!("{}; and {}", given_up.message, e.message), ..given_up }),
        }
    }

    fn refused(&self, answer: &Answer) -> Error {
        let why = if answer.text.is_empty() { "no reason was given".to_owned() } else { told(&answer.text) };
        Error::new(Exit::Refused, format!("the reservation was refused: {why}"))
            .hint("copy at another time or rate, or omit --reserve")
    }

    fn ask(&self, what: &str, more: &Value, is_stopped: &dyn Fn() -> bool) -> Result<Answer> {
        let mut question = json!({"v": 1, "do": what});
        if let (Value::Object(question), Value::Object(more)) = (&mut question, more) {
            question.extend(more.clone());
        }
        let failed = |why: String| {
            Error::new(Exit::Failed, format!("{} ({what}): {why}", shown(&self.program)))
                .hint("run it by hand with the question on its standard input, or omit --reserve")
        };
        let mut child = start(&self.program).map_err(|e| failed(format!("it cannot be run: {e}")))?;
        let (input, output, (tell, heard)) = (child.stdin.take(), child.stdout.take(), channel());
        let talk = move || {
            if let Some(mut input) = input {
                // One that ends without reading has its reasons: its answer counts.
                let _ = input.write_all(format!("{question}\n").as_bytes());
            }
            let mut bytes = Vec::new();
            let _ = output.map(|output| output.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut bytes));
            let _ = tell.send(bytes);
        };
        if let Err(e) = std::thread::Builder::new().name("reservation".to_owned()).spawn(talk) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(format!("start a thread: {e}")));
        }
        let until = Instant::now() + self.answer_within;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() >= until || is_stopped() => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(match is_stopped() {
                        true => Error::new(Exit::Interrupted, "stopped while the reservation was waited for"),
                        false => failed(format!("no answer within {:?}", self.answer_within)),
                    });
                }
                Ok(None) => std::thread::park_timeout(LOOK_EVERY),
                Err(e) => return Err(failed(e.to_string())),
            }
        };
        // Something that it left behind may hold its output open.
        let bytes = heard.recv_timeout(ASK_EVERY).unwrap_or_default();
        if bytes.len() as u64 > ANSWER_BYTES_MAX {
            return Err(failed("its answer is longer than 64 KiB".to_owned()));
        }
        if !status.success() {
            return Err(failed(format!("it ended with {status}")));
        }
        let answer: Answer =
            serde_json::from_slice(&bytes).map_err(|e| failed(format!("its answer cannot be read: {e}")))?;
        if answer.id.is_empty() && answer.state != State::Failed {
            return Err(failed("its answer has no id".to_owned()));
        }
        Ok(answer)
    }
}

impl Reserved {
    /// Gives back what was reserved; tried a few times.
    ///
    /// # Errors
    /// With the reservation's id, for whoever has to give it back by hand.
    pub fn release(self) -> Result<()> {
        let mut last = None;
        for _ in 0..RELEASES {
            match self.hook.ask("release", &json!({"job": self.job, "id": self.id}), &|| false) {
                Ok(answer) if answer.state != State::Failed => return Ok(()),
                Ok(answer) => last = Some(told(&answer.text)),
                Err(e) => last = Some(e.message),
            }
        }
        let (id, why) = (Escaped(self.id.as_bytes()).to_string(), last.unwrap_or_default());
        Err(Error::new(Exit::Failed, format!("the reservation {id} could not be released: {why}"))
            .hint(format!("release {id} by hand")))
    }
}

fn told(text: &str) -> String {
    let short: String = text.chars().take(TEXT_CHARS_MAX).collect();
    Escaped(short.as_bytes()).to_string()
}

fn start(program: &Path) -> std::io::Result<Child> {
    Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stub that ships, told to fail at one thing.
    struct Stub(tempfile::TempDir);

    impl Stub {
        fn new(fail: &str) -> (Stub, Hook) {
            let dir = tempfile::tempdir().unwrap();
            let stub = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/reservation/stub");
            // Its faults come by variable, which a test of many threads cannot set for one of them.
            let script = format!("#!/bin/sh\nSTUB_DIR={} STUB_FAIL={fail} exec {stub}\n", dir.path().display());
            let program = dir.path().join("hook");
            std::fs::write(&program, script).unwrap();
            std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
            let mut hook = Hook::new(program);
            (hook.answer_within, hook.active_within) = (Duration::from_secs(20), Duration::from_secs(30));
            (Stub(dir), hook)
        }

        fn asked(&self) -> String {
            std::fs::read_to_string(self.0.path().join("asked")).unwrap_or_default()
        }
    }

    fn wanted() -> Wanted {
        Wanted { job: "00ff".into(), source: "a".into(), destination: "b".into(), rate: Some(5), class: "high".into() }
    }

    #[test]
    fn a_path_is_reserved_waited_for_and_released() {
        let (stub, hook) = Stub::new("nothing");
        hook.reserve(&wanted(), &|| false).unwrap().release().unwrap();
        assert_eq!(stub.asked(), "reserve\nstatus\nrelease\n");
    }

    #[test]
    fn each_failure_has_its_words_and_leaves_nothing_reserved() {
        for (fail, words, asked) in [
            ("refuse", "the reservation was refused: no capacity", "reserve\n"),
            ("reserve", "(reserve): it ended with exit status: 1", "reserve\n"),
            ("garbage", "(reserve): its answer cannot be read", "reserve\n"),
            ("anonymous", "(reserve): its answer has no id", "reserve\n"),
            ("endless", "(reserve): its answer is longer than 64 KiB", "reserve\n"),
            ("status", "(status): it ended with exit status: 1", "reserve\nstatus\nrelease\n"),
        ] {
            let (stub, hook) = Stub::new(fail);
            let error = hook.reserve(&wanted(), &|| false).unwrap_err();
            assert!(error.message.contains(words), "{fail}: {}", error.message);
            assert_eq!(stub.asked(), asked, "{fail}");
        }
        let (stub, hook) = Stub::new("release");
        let error = hook.reserve(&wanted(), &|| false).unwrap().release().unwrap_err();
        assert!(error.message.contains("stub-00ff could not be released"), "{}", error.message);
        assert_eq!(stub.asked(), "reserve\nstatus\nrelease\nrelease\nrelease\n");
    }

    #[test]
    fn a_program_that_hangs_or_is_not_there_does_not_hold_the_job_for_ever() {
        let (_stub, mut hook) = Stub::new("hang");
        hook.answer_within = Duration::from_millis(200);
        assert!(hook.reserve(&wanted(), &|| false).unwrap_err().message.contains("no answer within 200ms"));
        // One that does not read, and is asked more than its input holds.
        std::fs::write(&hook.program, "#!/bin/sh\nexec sleep 60\n").unwrap();
        let long = Wanted { source: "x".repeat(1 << 20), ..wanted() };
        assert!(hook.reserve(&long, &|| false).unwrap_err().message.contains("no answer within 200ms"));
        let (_stub, mut hook) = Stub::new("never");
        hook.active_within = Duration::from_millis(1);
        assert!(hook.reserve(&wanted(), &|| false).unwrap_err().message.contains("is not active after 1ms"));
        let (_stub, hook) = Stub::new("never");
        assert_eq!(hook.reserve(&wanted(), &|| true).unwrap_err().exit, Exit::Interrupted);
        let error = Hook::new("/nonexistent/hook").reserve(&wanted(), &|| false).unwrap_err();
        assert!(error.message.contains("it cannot be run") && error.hint.is_some());
    }
}
