//! Endpoints that last for one session, started on another host through the user's own ssh program.
//!
//! Near side: `command` says what ssh is to run, `launch` starts it and waits for the remote side's greeting, `deploy` takes this
//! program there, `reach` finds a way for the data: straight to a port of the remote host, else through the ssh connection
//! (`tunnel`).
//! Remote side: `remote` serves what `offer` has opened to the one client it was told of; `host` holds each job to it, and `terms`
//! what another host sends to the command that told it to. Both: `message` is what they say to each other, `link` carries that,
//! and streams, over the two pipes. What a sending host cannot connect itself goes through a listener there, which `owner` keeps
//! to this user.
//!
//! Invariants:
//! - Neither side's key is ever trusted but by what ssh has carried: each learns the other's public key over it and accepts
//!   no other. There is no secret besides, and so none in arguments or logs.
//! - Everything that the user named travels on standard input; the command line that a shell sees holds none of it.
//! - The remote side of a copy reaches the paths that were asked for, in the way that was asked for; that of questions about files
//!   reaches what its user does. Both end with their standard input.
//!
//! Not here: who may log in, and how (ssh), and the data path (`mover`).

mod command;
mod deploy;
mod remote;
mod launch;
mod link;
mod message;
mod offer;
mod terms;
mod host;
mod owner;
mod tunnel;
mod reach;

pub use command::{Service, SshOptions, Target, read_ports};
pub use launch::{Subsystem, Tell};
pub use message::{Access, BoundTerms, ChmodTerms, CopyRequest, CopyTerms, PathBytes, Peer, SparedTerms};
pub use reach::{Reached, ThirdParty, Wanted, reach, third_party_copy};
pub use remote::{Asked, Copying, RemoteLink, accept};
