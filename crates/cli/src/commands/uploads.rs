//! `thalweg uploads`: uploads that were begun at an object store and never completed.
//!
//! Not here: uploads that a transfer of this program still works on end with it.

use crate::args::values;
use crate::exit::Result;
use model::Exit;
use std::ffi::OsString;

/// List or abort unfinished uploads at an object store
///
/// A store keeps the parts of an upload that was begun and not completed, and charges for them. An interrupted transfer leaves its
/// uploads for seven days, so that the same command goes on with them; uploads of other programs are listed too.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg uploads ls s3+lab://archive\n\
\x20   thalweg uploads abort s3+lab://archive/run42/")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
pub enum Action {
    /// One line for each open upload: when it was begun, its id, its key
    #[command(after_help = "Example:\n\
\x20   thalweg uploads ls s3+lab://archive")]
    Ls(Below),
    /// Abort every open upload below a location, whoever began it
    #[command(after_help = "Example:\n\
\x20   thalweg uploads abort s3+lab://archive/run42/")]
    Abort(Below),
}

#[derive(clap::Args, Debug)]
pub struct Below {
    /// A bucket, or a prefix of its keys: s3://BUCKET/PREFIX or s3+NAME://BUCKET/PREFIX
    #[arg(value_name = "LOC")]
    location: OsString,
}

#[cfg(feature = "object")]
pub fn run(args: Args) -> Result<Exit> {
    use crate::output;
    let (Action::Ls(Below { location }) | Action::Abort(Below { location })) = &args.action;
    let is_aborted = matches!(args.action, Action::Abort(_));
    let location = values::location(location)?;
    let place = crate::stores::buckets().place(&location).map_err(|e| transfer::Error::from_open(&e))?;
    let (mut found, mut failed) = (0, 0);
    let listed = place.bucket.uploads(&place.below(), &mut |upload| {
        found += 1;
        let begun = model::Timestamp { seconds: upload.begun, nanoseconds: 0 }.rfc3339();
        let line = format!("{begun} {} {}", output::shown(&upload.id), output::shown(&upload.key));
        if !is_aborted {
            output::line(&line);
        } else if let Err(failure) = place.bucket.abort(&upload.key, &upload.id) {
            failed += 1;
            output::note(&format!("failed: {line}: {failure}"));
        }
        true
    });
    let at = |failure: &dyn std::fmt::Display| format!("{location}: {failure}");
    listed.map_err(|failure| crate::exit::error(Exit::Failed, at(&failure), "give the same command again"))?;
    if failed > 0 {
        let uploads = output::counted(failed, "upload", "uploads");
        return Err(crate::exit::error(
            Exit::Partial,
            format!("{uploads} could not be aborted"),
            "the reasons are above",
        ));
    }
    if is_aborted {
        output::note(&format!("aborted {}", output::counted(found, "upload", "uploads")));
    }
    Ok(Exit::Done)
}

#[cfg(not(feature = "object"))]
pub fn run(args: Args) -> Result<Exit> {
    let (Action::Ls(Below { location }) | Action::Abort(Below { location })) = &args.action;
    let location = values::location(location)?;
    let opened = crate::stores::all().shelf(&location, store::How::Look);
    match opened {
        Err(e) => Err(transfer::Error::from_open(&e).into()),
        Ok(_) => Err(crate::exit::usage(format!("{location} has no uploads"), "name a bucket: s3://BUCKET")),
    }
}
