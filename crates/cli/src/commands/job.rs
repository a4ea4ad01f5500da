//! `thalweg job`: jobs that endpoints carry out in this user's name, and those of the hub.

use crate::exit::{Result, error, usage};
use crate::interrupt::Interrupt;
use crate::output::progress::Mode;
use crate::output::{self, counted};
#[cfg(feature = "hub")]
use crate::service::HubArgs;
use crate::transfer::orders::{Follower, amounts, id_of, state_of, summary};
use daemon::hand_in::{Desk, OrderNews, Told};
use daemon::{Endpoint, EndpointBook, Paths};
use model::name::Escaped;
use model::order::{Kind, Reason, Role, Steer};
use model::pace::Timetable;
use model::{Class, Exit, JobId, Timestamp};
use net::Identity;
use serde_json::{Value, json};

/// Look at and steer jobs that endpoints carry out
///
/// A copy between two endpoints is a job of one of them: it goes on when the command that gave it ends. Its id is
/// ENDPOINT/ID; of one of your endpoints the part behind the slash is enough. Jobs of a hub have an id without a slash.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg cp --detach siteA:run7/ siteB:run7/\n\
\x20   thalweg job ls\n\
\x20   thalweg job watch siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
pub enum Action {
    /// List your jobs at one endpoint, or at all that you know; without ENDPOINT, also those of the hub
    #[command(after_help = "Example:\n\x20   thalweg job ls siteA")]
    Ls(List),
    /// Show the state of a job and what failed in it
    #[command(after_help = "Example:\n\x20   thalweg job show siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8")]
    Show(One),
    /// Follow a job to its end, and end with its exit code; Ctrl-C ends only the following
    #[command(after_help = "Example:\n\x20   thalweg job watch siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8")]
    Watch(One),
    /// Pause a job cleanly until it is resumed
    #[command(after_help = "Example:\n\x20   thalweg job pause siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8")]
    Pause(One),
    /// Resume a paused job, or one that waits
    #[command(after_help = "Example:\n\x20   thalweg job resume siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8")]
    Resume(One),
    /// End a job; what was verified is kept
    #[command(after_help = "Example:\n\x20   thalweg job cancel siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8")]
    Cancel(One),
    /// Start an ended job again, or make a waiting one try at once
    #[command(after_help = "Example:\n\x20   thalweg job retry siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8")]
    Retry(One),
    /// Give a job another rate, which holds within a second
    #[command(after_help = "Examples:\n\
\x20   thalweg job rate siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8 80Mbit\n\
\x20   thalweg job rate siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8 off")]
    Rate(Rate),
    /// Give a job another class; one that runs begins anew with it, and keeps what was verified
    #[command(after_help = "Example:\n\x20   thalweg job class siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8 low")]
    Class(OtherClass),
    /// Forget an ended job
    #[command(after_help = "Example:\n\x20   thalweg job rm siteA/6f1c0d2b9a8e4f7061524334a5b6c7d8")]
    Rm(One),
}

#[derive(clap::Args, Debug)]
pub struct List {
    /// The endpoint that carries them out [default: every known one]
    #[arg(value_name = "ENDPOINT")]
    endpoint: Option<String>,
    /// One JSON object for each job
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[cfg(feature = "hub")]
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(clap::Args, Debug)]
pub struct One {
    /// The job, as `cp --detach` or `job ls` printed it
    #[arg(value_name = "ID")]
    id: String,
    /// A JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    #[cfg(feature = "hub")]
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(clap::Args, Debug)]
pub struct Rate {
    #[command(flatten)]
    one: One,
    /// A rate or a timetable, as for `cp --bwlimit`; `off` for no limit
    #[arg(value_name = "RATE|TIMETABLE", value_parser = Timetable::parse)]
    rate: Timetable,
}

#[derive(clap::Args, Debug)]
pub struct OtherClass {
    #[command(flatten)]
    one: One,
    /// What it counts beside others: high, normal or low
    #[arg(value_name = "CLASS")]
    class: Class,
}

pub fn run(args: Args) -> Result<Exit> {
    #[cfg(feature = "hub")]
    if let Some(ended) = at_hub(&args.action)? {
        return Ok(ended);
    }
    let paths = Paths::from_env()?;
    let office = Office {
        book: EndpointBook::new(paths.endpoints()),
        identity: paths.identity()?,
        interrupt: Interrupt::watch()?,
    };
    match args.action {
        Action::Ls(list) => office.list(&list),
        Action::Show(one) => office.show(&one),
        Action::Watch(one) => office.watch(&one),
        Action::Pause(one) => office.steer(&one, Steer::Pause),
        Action::Resume(one) => office.steer(&one, Steer::Resume),
        Action::Cancel(one) => office.steer(&one, Steer::Cancel),
        Action::Retry(one) => office.steer(&one, Steer::Retry),
        Action::Rate(Rate { one, rate }) => office.set_rate(&one, &rate),
        Action::Class(OtherClass { one, class }) => office.set_class(&one, class),
        Action::Rm(one) => office.steer(&one, Steer::Remove),
    }
}

/// What the running hub has, it is asked for; nothing where that is none of its jobs.
#[cfg(feature = "hub")]
fn at_hub(action: &Action) -> Result<Option<Exit>> {
    use crate::service::{Service, id_of};
    let (one, verb) = match action {
        Action::Ls(list) => {
            if list.endpoint.is_none()
                && let Some(service) = Service::running(&list.hub)?
            {
                service.list(list.json)?;
            }
            return Ok(None);
        }
        Action::Show(one) => (one, "show"),
        Action::Watch(one) => (one, "watch"),
        Action::Pause(one) => (one, "pause"),
        Action::Resume(one) => (one, "resume"),
        Action::Cancel(one) => (one, "cancel"),
        Action::Retry(one) => (one, "retry"),
        Action::Rate(Rate { one, .. }) => (one, "rate"),
        Action::Class(OtherClass { one, .. }) => (one, "class"),
        Action::Rm(one) => (one, "rm"),
    };
    let Some(id) = id_of(&one.id) else { return Ok(None) };
    let Some(service) = Service::running(&one.hub)? else { return Ok(None) };
    if !service.has(id)? {
        return Ok(None);
    }
    match (action, verb) {
        (_, "show") => service.show(id, one.json),
        (_, "watch") => service.watch(id, one.json),
        (Action::Rate(Rate { rate, .. }), _) => {
            let rate = rate.rate_min().map(|_| rate.to_string());
            service.change(id, &json!({"rate": rate}), one.json)
        }
        (Action::Class(OtherClass { class, .. }), _) => service.change(id, &json!({"class": class.name()}), one.json),
        (_, verb) => service.steer(id, verb, one.json),
    }
    .map(Some)
}

struct Office {
    book: EndpointBook,
    identity: Identity,
    interrupt: Interrupt,
}

impl Office {
    fn stop(&self) -> impl Fn() -> bool + '_ {
        || self.interrupt.is_set()
    }

    fn desk(&self, endpoint: &Endpoint) -> Result<Desk> {
        Desk::open(endpoint, &self.identity)
    }

    fn list(&self, list: &List) -> Result<Exit> {
        let endpoints = match &list.endpoint {
            Some(name) => vec![self.book.get(name)?],
            None => self.book.list()?,
        };
        let mut failed = None;
        for endpoint in &endpoints {
            let told = self.desk(endpoint).and_then(|desk| desk.list(&self.stop()));
            match told {
                Ok(told) => told.iter().for_each(|told| _ = output::line(&line(endpoint, told, list.json))),
                // Of one that was not asked for by name: it may carry out no jobs, or be away.
                Err(e) if list.endpoint.is_none() && endpoints.len() > 1 => {
                    // Most errors begin with the name.
                    let name = format!("{}: ", output::shown(&endpoint.name));
                    output::note(&format!("{name}{}", e.message.strip_prefix(&name).unwrap_or(&e.message)));
                    if !matches!(e.exit, Exit::Refused | Exit::Version) {
                        failed = Some(e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        failed.map_or(Ok(Exit::Done), Err)
    }

    /// The endpoint and the job that an id names.
    fn find(&self, text: &str) -> Result<(Endpoint, JobId)> {
        let (name, id) = text.rsplit_once('/').map_or((None, text), |(name, id)| (Some(name), id));
        let not_an_id = || {
            usage(format!("{} is not the id of a job", output::shown(text)), "`thalweg job ls` lists them: ENDPOINT/ID")
        };
        let job = JobId::from_hex(id).ok_or_else(not_an_id)?;
        if let Some(name) = name {
            return Ok((self.book.get(name)?, job));
        }
        for endpoint in self.book.list()? {
            let is_there = self.desk(&endpoint).and_then(|desk| desk.ask(job, &self.stop())).is_ok();
            if is_there {
                return Ok((endpoint, job));
            }
        }
        Err(error(Exit::Failed, format!("no endpoint that answers has the job {id}"), "write it as ENDPOINT/ID"))
    }

    fn show(&self, one: &One) -> Result<Exit> {
        let (endpoint, job) = self.find(&one.id)?;
        let told = self.desk(&endpoint)?.ask(job, &self.stop())?;
        if one.json {
            output::line(&line(&endpoint, &told, true));
            return Ok(Exit::Done);
        }
        details(&endpoint, &told).iter().for_each(|line| _ = output::line(line));
        Ok(Exit::Done)
    }

    fn watch(&self, one: &One) -> Result<Exit> {
        let (endpoint, job) = self.find(&one.id)?;
        let mode = Mode::Plain.resolved(one.json, false);
        let mode = if one.json { Mode::None } else { mode };
        let first = self.desk(&endpoint)?.ask(job, &self.stop())?;
        let told =
            Follower::new(&endpoint, &self.identity, job, mode, None).follow(Some(first), &self.interrupt, false)?;
        let Some(told) = told else {
            let hint = format!("to come back to it: thalweg job watch {}", id_of(&endpoint.name, job));
            return Err(error(self.interrupt.exit(), "no longer followed; the job goes on", hint));
        };
        if one.json {
            output::line(&line(&endpoint, &told, true));
        } else if let Some(ended) = told.ended.as_ref().filter(|_| told.failure().is_none()) {
            summary(told.news.kind, ended, &output::shown(&told.news.destination))
                .iter()
                .for_each(|line| output::note(line));
        }
        told.failure().map_or(Ok(Exit::Done), Err)
    }

    fn steer(&self, one: &One, steer: Steer) -> Result<Exit> {
        let (endpoint, job) = self.find(&one.id)?;
        let desk = self.desk(&endpoint)?;
        match steer {
            Steer::Resume | Steer::Retry => desk.renew(job, steer, &self.book, &self.stop())?,
            _ => desk.steer(job, steer, &self.stop())?,
        }
        self.tell(one, &endpoint, job, &desk);
        Ok(Exit::Done)
    }

    fn set_rate(&self, one: &One, rate: &Timetable) -> Result<Exit> {
        let (endpoint, job) = self.find(&one.id)?;
        let desk = self.desk(&endpoint)?;
        let bwlimit = rate.rate_min().map(|_| rate.to_string());
        desk.set_rate(job, bwlimit.as_deref(), &self.stop())?;
        self.tell(one, &endpoint, job, &desk);
        Ok(Exit::Done)
    }

    fn set_class(&self, one: &One, class: Class) -> Result<Exit> {
        let (endpoint, job) = self.find(&one.id)?;
        let desk = self.desk(&endpoint)?;
        desk.set_class(job, Some(class), &self.stop())?;
        self.tell(one, &endpoint, job, &desk);
        Ok(Exit::Done)
    }

    /// How the job stands then, for programs.
    fn tell(&self, one: &One, endpoint: &Endpoint, job: JobId, desk: &Desk) {
        if one.json {
            let told = desk.ask(job, &self.stop()).ok();
            let gone = || json!({"v": 1, "id": id_of(&endpoint.name, job)}).to_string();
            output::line(&told.map_or_else(gone, |told| line(endpoint, &told, true)));
        }
    }
}

fn created(told: &Told) -> String {
    Timestamp { seconds: told.news.created as i64, nanoseconds: 0 }.rfc3339()
}

/// What a job has moved. While a move removes its source, nothing is told of the copy before: that is in its end.
fn moved(told: &Told) -> String {
    let Some(ended) = told.ended.as_ref().filter(|_| told.status().is_end()) else { return amounts(&told.news) };
    amounts(&OrderNews { files_done: ended.files_done, bytes_done: ended.bytes, ..told.news.clone() })
}

/// One job in one line.
fn line(endpoint: &Endpoint, told: &Told, is_json: bool) -> String {
    let news = &told.news;
    let job = JobId::from_slice(&news.job_id).unwrap_or(JobId([0; 16]));
    let id = id_of(&endpoint.name, job);
    if is_json {
        return value(&id, told).to_string();
    }
    let (source, destination) = (output::shown(&news.source), output::shown(&news.destination));
    format!("{id}\t{}\t{}\t{source}\t{destination}\t{}", told.status(), created(told), moved(told))
}

fn value(id: &str, told: &Told) -> Value {
    let news = &told.news;
    let shown = |text: &str| Escaped(text.as_bytes()).to_string();
    let mut value = json!({"v": 1, "id": id, "status": told.status().word(),
        "reason": Reason::from_number(news.reason).filter(|reason| *reason != Reason::None).map(Reason::word),
        "text": shown(&news.text), "kind": Kind::from_number(news.kind).map(Kind::word),
        "role": Role::from_number(news.role).map(Role::word), "attempt": news.attempt,
        "source": shown(&news.source), "destination": shown(&news.destination), "created": created(told),
        "until": (news.until > 0).then(|| Timestamp { seconds: news.until as i64, nanoseconds: 0 }.rfc3339()),
        "files": {"listed": news.files_listed, "ok": news.files_done, "skipped": news.files_skipped, "failed": news.files_failed},
        "bytes": {"listed": news.bytes_listed, "ok": news.bytes_done}, "bytes_per_second": news.bytes_per_second});
    if let Some(ended) = &told.ended {
        value["code"] = json!(ended.code as i32);
        value["message"] = json!(shown(&ended.text));
        value["hint"] = json!(shown(&ended.hint));
        value["seconds"] = json!(ended.milliseconds as f64 / 1000.0);
        value["files"] = json!({"listed": news.files_listed, "ok": ended.files_done, "skipped": ended.files_skipped,
            "failed": ended.files_failed});
        value["bytes"] = json!({"listed": news.bytes_listed, "ok": ended.bytes, "sent": ended.bytes_sent});
        value["removed"] = json!(ended.removed);
    }
    if let Some(events) = &told.events {
        let failure = |record: &daemon::hand_in::OrderFailure| {
            json!({"path": Escaped(&record.path).to_string(), "message": shown(&record.text),
                "reason": model::FailureKind::from_number(record.kind).name()})
        };
        value["failures"] = events.failures.iter().map(failure).collect();
        value["failures_untold"] = json!(events.untold);
    }
    value
}

fn details(endpoint: &Endpoint, told: &Told) -> Vec<String> {
    let news = &told.news;
    let job = JobId::from_slice(&news.job_id).unwrap_or(JobId([0; 16]));
    let role = Role::from_number(news.role).map_or("carries it out", Role::word);
    let mut lines = vec![
        format!("id           {}", id_of(&endpoint.name, job)),
        format!("status       {}", state_of(news)),
        format!("from         {}", output::shown(&news.source)),
        format!("to           {}", output::shown(&news.destination)),
        format!("handed in    {}, attempt {}; {} {role}", created(told), news.attempt, endpoint.name),
    ];
    match &told.ended {
        Some(ended) => {
            lines.extend(
                summary(news.kind, ended, &output::shown(&news.destination))
                    .into_iter()
                    .map(|line| format!("             {line}")),
            );
            if ended.code != 0 {
                lines.push(format!(
                    "error        {} (exit code {})",
                    Escaped(ended.text.as_bytes()),
                    ended.code as i32
                ));
                lines.push(format!("hint         {}", Escaped(ended.hint.as_bytes())));
            }
        }
        None => {
            lines.push(format!("moved        {}", amounts(news)));
            let pace = Escaped(news.bottleneck.as_bytes());
            lines.extend((!news.bottleneck.is_empty()).then(|| format!("now          {pace}")));
        }
    }
    if let Some(events) = &told.events {
        let failure = |record: &daemon::hand_in::OrderFailure| {
            format!("failed       {}: {}", Escaped(&record.path), Escaped(record.text.as_bytes()))
        };
        lines.extend(events.failures.iter().map(failure));
        if events.untold > 0 {
            lines.push(format!("and {} that are not listed", counted(events.untold, "failure", "failures")));
        }
    }
    lines
}

/// Everything that is shown of a job, for tests.
#[cfg(test)]
pub fn shown(told: &Told) -> String {
    let pin = model::Pin([1; 32]);
    let endpoint = Endpoint { name: "a".into(), addresses: Vec::new(), pin, added: String::new() };
    [line(&endpoint, told, false), line(&endpoint, told, true), details(&endpoint, told).join("\n")].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::hand_in::OrderEnded;
    use model::order::Status;

    #[test]
    fn a_move_that_ended_shows_what_it_copied() {
        let news = OrderNews { status: Status::Succeeded as u32, kind: Kind::Move as u32, ..OrderNews::default() };
        let ended = OrderEnded { files_done: 2, bytes: 5, ..OrderEnded::default() };
        let told = Told { news, ended: Some(ended), events: None };
        assert_eq!(moved(&told), "2 files, 5 B");
    }
}
