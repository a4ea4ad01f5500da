//! Jobs whose storage hangs while they are opened, beside others of the same session.

use crate::endpoint::{OpenHost, client, describe, serve};
use crate::{finished, make_files, push_spec, source};
use model::{JobId, TransferOptions};
use mover::session::{Grant, Host, HostFacts, Opened, PushSpec, Server};
use mover::{Ending, Memory, Progress};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;
use wire::Refusal;
use wire::handshake::Direction;
use wire::message::Open;

const PATIENCE: Duration = Duration::from_secs(30);
const HANGS: &str = "hangs";

/// Opens everything, but one path only once it is told to, as a mount whose server is away does.
struct Hanging {
    open: OpenHost,
    is_released: Mutex<bool>,
    released: Condvar,
    entered: mpsc::Sender<()>,
    ended: mpsc::Sender<(JobId, String)>,
}

impl Hanging {
    fn release(&self) {
        *self.is_released.lock().unwrap() = true;
        self.released.notify_all();
    }
}

impl Host for Hanging {
    fn facts(&self) -> HostFacts {
        self.open.facts()
    }

    fn authorise(&self, pin: model::Pin, credential: &[u8]) -> Result<Grant, Refusal> {
        self.open.authorise(pin, credential)
    }

    fn open(
        &self,
        grant: &Grant,
        job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        if open.paths[0] == HANGS.as_bytes() {
            self.entered.send(()).unwrap();
            drop(self.released.wait_while(self.is_released.lock().unwrap(), |is_released| !*is_released).unwrap());
        }
        self.open.open(grant, job, direction, open, options)
    }

    fn ended(&self, _: &Grant, job: JobId, _: Direction, _: &Progress, ending: &Ending) {
        let _ = self.ended.send((job, format!("{ending:?}")));
    }
}

struct Scene {
    dir: tempfile::TempDir,
    host: Arc<Hanging>,
    server: Arc<Server>,
    entered: mpsc::Receiver<()>,
    ended: mpsc::Receiver<(JobId, String)>,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        make_files(&dir.path().join("from"));
        std::fs::create_dir(dir.path().join("root")).unwrap();
        let open = OpenHost { root: dir.path().join("root") };
        let ((enter, entered), (end, ended)) = (mpsc::channel(), mpsc::channel());
        let (is_released, released) = (Mutex::default(), Condvar::new());
        let host = Arc::new(Hanging { open, is_released, released, entered: enter, ended: end });
        let server = Server::new(host.clone(), Memory::default());
        Scene { dir, host, server, entered, ended }
    }

    fn from(&self) -> PathBuf {
        self.dir.path().join("from")
    }
}

fn stuck_spec() -> PushSpec {
    PushSpec { id: JobId([9; 16]), ..push_spec(HANGS, TransferOptions::default()) }
}

#[track_caller]
fn arrived(from: &Path, to: &Path) {
    assert_eq!(describe(from), describe(to));
}

#[test]
fn a_job_whose_storage_hangs_holds_up_no_other_of_its_session_and_then_runs() {
    let scene = Scene::new();
    let place = serve(scene.server.clone());
    let client = client(&place, Some(2));
    let (from, root) = (scene.from(), scene.dir.path().join("root"));
    std::thread::scope(|scope| {
        let push = || client.push(stuck_spec(), source(&from), Progress::new(), None, &|| false);
        let stuck = scope.spawn(push);
        scene.entered.recv_timeout(PATIENCE).unwrap();
        for path in ["one", "two"] {
            let spec = push_spec(path, TransferOptions::default());
            finished(&client.push(spec, source(&from), Progress::new(), None, &|| false));
            arrived(&from, &root.join(path));
        }
        assert!(!stuck.is_finished() && !root.join(HANGS).exists());
        scene.host.release();
        finished(&stuck.join().unwrap());
    });
    arrived(&from, &root.join(HANGS));
    client.close();
}

#[test]
fn a_job_that_is_open_only_after_its_session_ends_with_it() {
    let scene = Scene::new();
    let place = serve(scene.server.clone());
    let client = client(&place, Some(1));
    let from = scene.from();
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| client.push(stuck_spec(), source(&from), Progress::new(), None, &|| false));
        scene.entered.recv_timeout(PATIENCE).unwrap();
        scene.server.shut_down();
        assert!(!matches!(stuck.join().unwrap().ending, Ending::Finished(_)));
    });
    drop(client);
    assert!(scene.server.wait_idle(PATIENCE));
    assert!(scene.ended.try_recv().is_err());
    scene.host.release();
    let (job, ending) = scene.ended.recv_timeout(PATIENCE).unwrap();
    assert_eq!(job, stuck_spec().id);
    assert!(!ending.starts_with("Finished"), "{ending}");
}
