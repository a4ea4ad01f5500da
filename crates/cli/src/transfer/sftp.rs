//! SFTP and GridFTP servers, reached by the user's own ssh as other hosts are.

use super::remote::tell;
use foreign::sftp::{Dial, Host, Line, Servers};
use model::Exit;
use ssh::{Service, SshOptions, Subsystem, Target};
use std::sync::{Arc, OnceLock};
use store::OpenError;
use store::open::Refused;

static OPTIONS: OnceLock<SshOptions> = OnceLock::new();

/// Keeps what the command says of ssh, before any server is opened.
pub fn reach_by(options: &SshOptions) {
    let _ = OPTIONS.set(options.clone());
}

/// What opens `sftp://`; a process has one, so that a server is greeted once however often a command names it.
pub fn servers() -> Arc<Servers> {
    static SERVERS: OnceLock<Arc<Servers>> = OnceLock::new();
    SERVERS.get_or_init(|| Arc::new(Servers::new(Arc::new(BySsh(Service::Sftp))))).clone()
}

/// What starts a GridFTP server on another host.
pub fn grid_dial() -> Arc<dyn Dial> {
    Arc::new(BySsh(Service::GridFtp))
}

struct BySsh(Service);

impl Dial for BySsh {
    fn dial(&self, host: &Host) -> Result<Line, OpenError> {
        let target = Target::parse(&host.name).map_err(refused)?;
        let options = OPTIONS.get().cloned().unwrap_or_default();
        let started = Subsystem::start(&options, &target, host.port, self.0, tell());
        let (subsystem, input, output) = started.map_err(refused)?;
        let why = Box::new(|| refused(subsystem.explain()));
        Ok(Line { input: Box::new(input), output: Box::new(output), why })
    }
}

fn refused(error: daemon::error::Error) -> OpenError {
    let why = match error.exit {
        Exit::Authentication => Refused::Keys,
        Exit::Usage => Refused::Request,
        _ => Refused::Unreachable,
    };
    OpenError::Refused { why, text: error.message, advice: error.hint.unwrap_or_default() }
}
