//! Getting in.
//!
//! Invariant: no password stands in an error.
//!
//! Not here: connecting, and how many conversations there are (`server`).

use super::fault::{Fault, Result, said};
use super::session::{Features, Session};
use store::OpenError;
use store::open::Refused;

/// Who is let in.
#[derive(Clone)]
pub struct Account {
    pub user: String,
    pub password: String,
}

impl Account {
    fn without_password(&self, text: String) -> String {
        // An empty one is between any two letters.
        if self.password.is_empty() { text } else { text.replace(&self.password[..], "...") }
    }
}

/// Logs in, and tells whether a password was asked for.
pub fn log_in(name: &str, account: &Account, session: &mut Session) -> std::result::Result<bool, OpenError> {
    let Account { user, password } = account;
    let mut logged = session.ask(format!("USER {user}").into_bytes());
    let takes_password = logged.as_ref().is_ok_and(|reply| reply.code == 331);
    if takes_password {
        logged = session.ask(format!("PASS {password}").into_bytes());
    }
    let fault = match logged {
        Ok(reply) if reply.code / 100 == 2 => return Ok(takes_password),
        Ok(reply) => Fault::of(&reply),
        Err(fault) => fault,
    };
    let text = said(&fault);
    let lower = text.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    // The last two are dCache's.
    let says = ["gssapi", "authentication required", "wrapped in mic"];
    let names_gsi = says.iter().any(|what| lower.contains(what)) || words.any(|word| word == "gsi");
    let text = account.without_password(text);
    Err(match fault {
        Fault::Refused { .. } if names_gsi && !takes_password => OpenError::refused(
            Refused::Keys,
            format!(
                "{name} asks for GSI, the certificates of grids, which this program does not speak ({text}): GridFTP sites are \
                 leaving it for tokens"
            ),
            "use the site's davs:// door with a token (docs/webdav.md), sshftp://HOST/PATH if you may log in there by ssh, or copy \
             with globus-url-copy",
        ),
        Fault::Refused { .. } => OpenError::refused(
            Refused::Keys,
            format!("{name} does not let {user} in: {text}"),
            "name the user as ftp://USER@HOST/PATH, and a file with the password as credentials_file in the server's table \
             (docs/gridftp.md)",
        ),
        _ => OpenError::refused(Refused::Unreachable, format!("{name}: {text}"), "try again"),
    })
}

/// Begins another conversation with a server of which it is known what it asks and what it can: all in one.
pub fn log_in_again(account: &Account, can: &Features, session: &mut Session) -> Result<()> {
    let Account { user, password } = account;
    session.can = can.clone();
    let mut commands = vec![format!("USER {user}").into_bytes()];
    commands.extend(can.asks_password.then(|| format!("PASS {password}").into_bytes()));
    let done = session.set_up(commands).map_err(|fault| match fault {
        Fault::Refused { code, text } => Fault::Refused { code, text: account.without_password(text) },
        Fault::Lost(text) => Fault::Lost(account.without_password(text.to_string()).into()),
        fault => fault,
    });
    // From here on, as in the first conversation: a password may be more than text.
    session.adopt(can.clone());
    done
}
