//! Who may do what at a hub: tokens with scopes, and rules for those that are no administrators.
//!
//! A token is shown once and kept as its digest; it names a principal, `token:NAME`, which may do nothing until a rule allows it.
//! A scope says what kind of request a token is good for, a rule what its jobs may touch. Both are in `access.json` beside the
//! database: what was withdrawn does not come back with an old copy of the queue.
//!
//! Invariants: no secret is kept, shown twice, or compared in a time that depends on it; a change is durable before it is answered;
//! what is not allowed is refused. Not here: how a token reaches us (`api`), what endpoints allow the hub itself (its tickets).

use crate::events::rfc3339;
use crate::job_file::Wish;
use crate::rule::{Rule, Verb};
use crate::{Error, Result, unix_ms};
use daemon::private_file::{self, Existing};
use model::name::{Name, relative_path};
use model::order::Kind;
use model::{Exit, mutant};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

/// What a token of ours begins with, so that scanners find one that went astray.
const PREFIX: &str = "twh_";
const TOKENS_MAX: usize = 1000;
const RULES_MAX: usize = 10_000;
/// Shares by one who is no administrator, and how long they hold at most.
const SHARES_MAX: usize = 100;
const SHARE_MS_MAX: i64 = 90 * 86_400_000;
const FILE_BYTES_MAX: u64 = 16 << 20;
const NAME_BYTES_MAX: usize = 64;
pub const LIFETIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// What a request may be for; each is a bit of `Scopes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// See one's own jobs.
    Read = 1,
    /// Hand in jobs.
    Submit = 2,
    /// Pause, resume, change, cancel, forget one's own jobs.
    Steer = 4,
    /// Everything, for everybody's jobs; endpoints, tokens and rules besides.
    Admin = 8,
}

impl Scope {
    pub const ALL: [Scope; 4] = [Scope::Read, Scope::Submit, Scope::Steer, Scope::Admin];

    pub fn word(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Submit => "submit",
            Scope::Steer => "steer",
            Scope::Admin => "admin",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scopes(u8);

impl Scopes {
    pub const ALL: Scopes = Scopes(15);
    /// What somebody who is no administrator can have.
    pub const ORDINARY: Scopes = Scopes(7);

    pub fn of(scopes: &[Scope]) -> Scopes {
        Scopes(scopes.iter().fold(0, |bits, scope| bits | *scope as u8))
    }

    /// Words with commas between them.
    pub fn parse(text: &str) -> Result<Scopes> {
        let word = |word: &str| Scope::ALL.into_iter().find(|scope| scope.word() == word.trim());
        let scopes: Option<Vec<Scope>> = text.split(',').map(word).collect();
        let wrong = || {
            Error::new(Exit::Usage, format!("{text:?} is no list of scopes"))
                .hint("the scopes are read, submit, steer and admin, with commas between them")
        };
        Ok(Scopes::of(&scopes.ok_or_else(wrong)?))
    }

    pub fn has(self, scope: Scope) -> bool {
        self.0 & (scope as u8 | Scope::Admin as u8) != 0
    }

    pub fn words(self) -> Vec<&'static str> {
        Scope::ALL.into_iter().filter(|scope| self.0 & *scope as u8 != 0).map(Scope::word).collect()
    }
}

/// Who asks. An administrator sees and steers everybody's jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// `unix:UID` or `token:NAME`.
    pub name: String,
    pub scopes: Scopes,
    /// The digest of the token that it came with.
    token: Option<[u8; 32]>,
}

impl Principal {
    /// Somebody whom the kernel names: whoever runs the hub and root are its administrators.
    pub fn local(user: u32) -> Principal {
        let scopes = if is_own(user) { Scopes::ALL } else { Scopes::ORDINARY };
        Principal { name: format!("unix:{user}"), scopes, token: None }
    }

    pub fn is_admin(&self) -> bool {
        self.scopes.has(Scope::Admin)
    }
}

fn is_own(user: u32) -> bool {
    user == 0 || user == rustix::process::getuid().as_raw()
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    name: String,
    /// SHA-256 of the token, in hexadecimal digits.
    digest: String,
    scopes: Vec<Scope>,
    /// Milliseconds since 1970.
    created: i64,
    expires: i64,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    version: u32,
    last_rule: u64,
    tokens: Vec<Token>,
    rules: Vec<(u64, String)>,
}

const VERSION: u32 = 1;

/// A token as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct TokenView {
    pub name: String,
    pub scopes: Vec<&'static str>,
    pub created: String,
    pub expires: String,
    pub is_expired: bool,
}

/// A rule as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct RuleView {
    pub id: u64,
    pub rule: String,
}

pub struct Access {
    path: PathBuf,
    /// Held for writing while a change takes effect, and no longer: whoever asks for anything reads it.
    held: RwLock<Held>,
    /// Held while a change is made durable.
    changing: Mutex<()>,
    /// Up to when expired tokens were looked for.
    looked: AtomicI64,
}

#[derive(Clone, PartialEq, Eq, Default)]
struct Held {
    tokens: Vec<(Token, [u8; 32])>,
    rules: Vec<(u64, Rule)>,
    last_rule: u64,
}

impl Held {
    /// The token of this name, until it expires.
    fn token(&self, name: &str, now: i64) -> Option<&Token> {
        self.tokens.iter().map(|(token, _)| token).find(|token| token.name == name && token.expires > now)
    }

    fn is_admin(&self, name: &str, now: i64) -> bool {
        match name.split_once(':') {
            Some(("unix", user)) => user.parse().is_ok_and(is_own),
            Some(("token", name)) => self.token(name, now).is_some_and(|token| token.scopes.contains(&Scope::Admin)),
            _ => false,
        }
    }

    /// Whether somebody can still be the one whom rules speak of: with a token, until it expires.
    fn is_somebody(&self, who: &str, now: i64) -> bool {
        who.strip_prefix("token:").is_none_or(|name| self.token(name, now).is_some())
    }

    /// By a rule of an administrator.
    fn allows_itself(&self, who: &str, verb: Verb, endpoint: &str, path: &[Name], now: i64) -> bool {
        let is_it = |rule: &Rule| rule.by.is_none() && !rule.is_over(now) && rule.allows(who, verb, endpoint, path);
        self.rules.iter().any(|(_, rule)| is_it(rule))
    }

    /// Whether somebody may let others do something at a place.
    fn may_share(&self, who: &str, verb: Verb, endpoint: &str, path: &[Name], now: i64) -> bool {
        let may = |verb| self.allows_itself(who, verb, endpoint, path, now);
        let may_manage = || self.is_somebody(who, now) && may(Verb::Manage) && may(verb);
        self.is_admin(who, now) || may_manage() || mutant::is_on("share-what-one-may-not")
    }

    /// By a rule of an administrator, or by a share of one who may do the same.
    fn allows(&self, who: &str, verb: Verb, endpoint: &str, path: &[Name], now: i64) -> bool {
        let is_it = |rule: &Rule| {
            let is_backed = |by: &String| self.may_share(by, verb, endpoint, path, now);
            !rule.is_over(now) && rule.allows(who, verb, endpoint, path) && rule.by.as_ref().is_none_or(is_backed)
        };
        self.rules.iter().any(|(_, rule)| is_it(rule))
    }

    fn check_share(&self, rule: &Rule, who: &str, now: i64) -> Result<()> {
        let refused = |text: String, hint: &str| Err(Error::new(Exit::Refused, text).hint(hint));
        if rule.until.is_none_or(|until| until > now.saturating_add(SHARE_MS_MAX)) {
            return refused(
                "a share holds for 90 days at most".to_owned(),
                "say until when: allow token:NAME read until 2027-03-01T06:00:00Z siteA:results",
            );
        }
        let forbidden = rule
            .verbs()
            .find(|verb| *verb == Verb::Manage || !self.may_share(who, *verb, &rule.endpoint, &rule.path, now));
        if let Some(verb) = forbidden {
            let place = format!("{}:{}", rule.endpoint, model::name::Escaped(&model::name::join(&rule.path)));
            return refused(
                format!("{who} may not let others {} {place}", verb.word()),
                "sharing needs `manage` and what is shared, by a rule of an administrator",
            );
        }
        match self.rules.iter().filter(|(_, other)| other.by.as_deref() == Some(who)).count() {
            SHARES_MAX.. => {
                refused(format!("{who} has {SHARES_MAX} shares already"), "withdraw some first: `thalweg rule rm`")
            }
            _ => Ok(()),
        }
    }

    /// Somebody, and those with whom that one shares.
    fn depend_on(&self, who: &str) -> Vec<String> {
        let of =
            self.rules.iter().filter(|(_, rule)| rule.by.as_deref() == Some(who)).map(|(_, rule)| rule.who.clone());
        std::iter::once(who.to_owned()).chain(of).collect()
    }
}

/// Where a job puts more than its destination: a single file may take the name of that, and what is kept for it lies beside it.
fn beside(wish: &Wish) -> Option<Vec<Name>> {
    let (options, to) = (&wish.spec.options, wish.spec.destination.path());
    let keeps_more = wish.kind != Kind::Check && (options.backup.is_some() || options.sealed_list.is_some());
    let may_be_a_name = wish.spec.sources.len() == 1 && !to.ends_with(b"/") && !to.ends_with(b"/.");
    let mut names = relative_path(to).ok().filter(|_| keeps_more && may_be_a_name)?;
    names.pop()?;
    Some(names)
}

fn wrong(text: impl Into<String>, hint: &str) -> Error {
    Error::new(Exit::Usage, text).hint(hint)
}

impl Access {
    pub fn open(state_dir: &Path) -> Result<Access> {
        let path = state_dir.join("access.json");
        let bytes = private_file::read(&path, FILE_BYTES_MAX, true)?;
        let unreadable = |what: &str| {
            Error::new(Exit::Failed, format!("{} {what}", path.display()))
                .hint("restore it from a backup, or remove it and make tokens and rules anew: open jobs that need them are cancelled then")
        };
        let table: Table = match &bytes {
            Some(bytes) => serde_json::from_slice(bytes).map_err(|_| unreadable("cannot be read"))?,
            None => Table { version: VERSION, ..Table::default() },
        };
        if table.version != VERSION {
            return Err(unreadable("is of another version of this program"));
        }
        let digest = |token: Token| Some((model::Pin::from_hex(&token.digest)?.0, token));
        let tokens: Option<Vec<_>> =
            table.tokens.into_iter().map(|token| digest(token).map(|(digest, token)| (token, digest))).collect();
        let rules: Result<Vec<_>> = table.rules.iter().map(|(id, text)| Ok((*id, Rule::parse(text)?))).collect();
        let tokens = tokens.ok_or_else(|| unreadable("holds a digest that is none"))?;
        let held = RwLock::new(Held { tokens, rules: rules?, last_rule: table.last_rule });
        Ok(Access { path, held, changing: Mutex::new(()), looked: AtomicI64::new(unix_ms()) })
    }

    fn read<T>(&self, look: impl FnOnce(&Held) -> T) -> T {
        look(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes effect once it is durable, or not at all.
    fn change<T>(&self, change: impl FnOnce(&mut Held) -> Result<T>) -> Result<T> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = self.read(Held::clone);
        let answer = change(&mut next)?;
        if self.read(|held| *held == next) {
            return Ok(answer);
        }
        let table = Table {
            version: VERSION,
            last_rule: next.last_rule,
            tokens: next.tokens.iter().map(|(token, _)| token.clone()).collect(),
            rules: next.rules.iter().map(|(id, rule)| (*id, rule.to_string())).collect(),
        };
        let text = serde_json::to_string(&table).unwrap_or_default();
        private_file::write(&self.path, text.as_bytes(), Existing::Replace)
            .map_err(|e| Error::of_file("write", &self.path, e))?;
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(answer)
    }

    /// Makes a token and returns it: the only time that it can be seen. One of the name that has expired makes room.
    pub fn new_token(&self, name: &str, scopes: Scopes, lifetime: Duration) -> Result<String> {
        let is_name = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_name) {
            return Err(wrong("a token's name has 1 to 64 letters, digits, `.`, `_` and `-`", "choose another name"));
        }
        if lifetime.is_zero() || lifetime > LIFETIME_MAX {
            return Err(wrong("a token holds for a year at most", "give a shorter time, and make another one then"));
        }
        if scopes == Scopes::default() {
            return Err(wrong("a token needs at least one scope", "read, submit, steer, admin"));
        }
        let secret = format!("{PREFIX}{}", model::Pin(net::random_bytes()));
        let digest = net::sha256(secret.as_bytes());
        let now = unix_ms();
        let token = Token {
            name: name.to_owned(),
            digest: model::Pin(digest).to_string(),
            scopes: Scope::ALL.into_iter().filter(|scope| scopes.words().contains(&scope.word())).collect(),
            created: now,
            expires: now + lifetime.as_millis() as i64,
        };
        self.change(|held| {
            held.tokens.retain(|(other, _)| other.name != name || other.expires > now);
            if held.tokens.iter().any(|(other, _)| other.name == name) {
                return Err(Error::new(Exit::LimitCrossed, format!("there is a token {name} already"))
                    .hint("choose another name, or remove that one first: `thalweg token rm`"));
            }
            if held.tokens.len() >= TOKENS_MAX {
                return Err(Error::new(Exit::LimitCrossed, "there are 1,000 tokens already").hint("remove some first"));
            }
            held.tokens.push((token, digest));
            Ok(())
        })?;
        Ok(secret)
    }

    pub fn tokens(&self) -> Vec<TokenView> {
        let now = unix_ms();
        let view = |token: &Token| TokenView {
            name: token.name.clone(),
            scopes: Scopes::of(&token.scopes).words(),
            created: rfc3339(token.created),
            expires: rfc3339(token.expires),
            is_expired: token.expires <= now,
        };
        self.read(|held| held.tokens.iter().map(|(token, _)| view(token)).collect())
    }

    /// Withdraws a token, and with it what rules allowed it: another one of this name begins with nothing. Whose rules are others then.
    pub fn remove_token(&self, name: &str) -> Result<Vec<String>> {
        self.change(|held| {
            let before = held.tokens.len();
            held.tokens.retain(|(token, _)| token.name != name);
            if held.tokens.len() == before {
                let text = format!("there is no token {}", model::name::Escaped(name.as_bytes()));
                return Err(Error::new(Exit::SourceFileNotFound, text).hint("`thalweg token ls` lists them"));
            }
            let who = format!("token:{name}");
            let affected = held.depend_on(&who);
            held.rules.retain(|(_, rule)| rule.who != who && rule.by.as_ref() != Some(&who));
            Ok(affected)
        })
    }

    /// Whose token this is, if it is one and has not expired.
    pub fn recognise(&self, secret: &str) -> Option<Principal> {
        let digest = net::sha256(secret.as_bytes());
        let now = unix_ms();
        self.read(|held| {
            // All are looked at, each in the same time.
            let mut found = None;
            for (token, known) in &held.tokens {
                if net::constant_time_eq(known, &digest) {
                    found = Some(token);
                }
            }
            let token = found.filter(|token| token.expires > now)?;
            Some(Principal {
                name: format!("token:{}", token.name),
                scopes: Scopes::of(&token.scopes),
                token: Some(digest),
            })
        })
    }

    /// Whether what somebody came with still holds.
    pub fn is_current(&self, who: &Principal) -> bool {
        let Some(digest) = &who.token else { return true };
        let now = unix_ms();
        self.read(|held| held.tokens.iter().any(|(token, known)| known == digest && token.expires > now))
    }

    /// Whether a principal of this name is an administrator.
    pub fn is_admin(&self, name: &str) -> bool {
        let now = unix_ms();
        self.read(|held| held.is_admin(name, now))
    }

    /// All for an administrator, for others what they share.
    pub fn rules(&self, who: &Principal) -> Vec<RuleView> {
        let view = |(id, rule): &(u64, Rule)| RuleView { id: *id, rule: rule.to_string() };
        let is_seen = |(_, rule): &&(u64, Rule)| who.is_admin() || rule.by.as_ref() == Some(&who.name);
        self.read(|held| held.rules.iter().filter(is_seen).map(view).collect())
    }

    /// Of one who is no administrator it is a share, which says so.
    pub fn add_rule(&self, who: &Principal, text: &str) -> Result<RuleView> {
        let mut rule = Rule::parse(text)?;
        if rule.by.as_ref().is_some_and(|by| *by != who.name || who.is_admin()) {
            return Err(wrong("a rule is not made in another's name", "leave `by` out: the hub writes it"));
        }
        if !who.is_admin() {
            rule.by = Some(who.name.clone());
        }
        let now = unix_ms();
        if rule.is_over(now) {
            return Err(wrong("the rule would be over already", "name a later moment behind `until`"));
        }
        self.change(|held| {
            if !who.is_admin() {
                held.check_share(&rule, &who.name, now)?;
            }
            if let Some((id, known)) = held.rules.iter().find(|(_, known)| *known == rule) {
                return Ok(RuleView { id: *id, rule: known.to_string() });
            }
            if held.rules.len() >= RULES_MAX {
                return Err(Error::new(Exit::LimitCrossed, "there are 10,000 rules already").hint("remove some first"));
            }
            held.last_rule += 1;
            let view = RuleView { id: held.last_rule, rule: rule.to_string() };
            held.rules.push((held.last_rule, rule));
            Ok(view)
        })
    }

    /// Whose rules are others then.
    pub fn remove_rule(&self, who: &Principal, id: u64) -> Result<Vec<String>> {
        self.change(|held| {
            let is_it =
                |(known, rule): &(u64, Rule)| *known == id && (who.is_admin() || rule.by.as_ref() == Some(&who.name));
            let found = held.rules.iter().position(is_it);
            let at = found.ok_or_else(|| {
                Error::new(Exit::SourceFileNotFound, format!("there is no rule {id}"))
                    .hint("`thalweg rule ls` lists them")
            })?;
            let (_, rule) = held.rules.remove(at);
            Ok(held.depend_on(&rule.who))
        })
    }

    /// Takes away the rules whose time is over. Whose they were, and whose tokens have expired since the last time.
    pub fn lapse(&self) -> Result<Vec<String>> {
        let (now, looked) = (unix_ms(), self.looked.load(Relaxed));
        let (mut affected, has_over) = self.read(|held| {
            let expired = held.tokens.iter().filter(|(token, _)| looked < token.expires && token.expires <= now);
            let affected: Vec<String> =
                expired.flat_map(|(token, _)| held.depend_on(&format!("token:{}", token.name))).collect();
            (affected, held.rules.iter().any(|(_, rule)| rule.is_over(now)))
        });
        if has_over {
            affected.extend(self.change(|held| {
                let over: Vec<String> =
                    held.rules.iter().filter(|(_, rule)| rule.is_over(now)).map(|(_, rule)| rule.who.clone()).collect();
                held.rules.retain(|(_, rule)| !rule.is_over(now));
                Ok(over.iter().flat_map(|who| held.depend_on(who)).collect::<Vec<_>>())
            })?);
        }
        self.looked.store(now, Relaxed);
        Ok(affected)
    }

    /// Whether somebody may do what a job of theirs does: an administrator may.
    pub fn check_owner(&self, wish: &Wish) -> Result<()> {
        let owner = &wish.facts.owner;
        if self.is_admin(owner) { Ok(()) } else { self.check(owner, wish) }
    }

    /// Whether rules allow somebody what a job of theirs does. The first thing that they do not is named.
    pub fn check(&self, who: &str, wish: &Wish) -> Result<()> {
        let sources = wish.spec.sources.iter().map(|source| (Verb::Read, &wish.facts.from, source.path()));
        let to = wish.spec.destination.path();
        let mut needs: Vec<_> = sources.collect();
        let options = &wish.spec.options;
        // What only tells what is there writes nothing.
        if wish.kind == Kind::Check || options.is_dry_run {
            needs.push((Verb::Read, &wish.facts.to, to));
        }
        if wish.kind != Kind::Check {
            needs.push((Verb::Write, &wish.facts.to, to));
        }
        if wish.kind == Kind::Move {
            needs.extend(wish.spec.sources.iter().map(|source| (Verb::Delete, &wish.facts.from, source.path())));
        }
        if options.deletion.is_some() {
            needs.push((Verb::Delete, &wish.facts.to, to));
        }
        let (now, beside) = (unix_ms(), beside(wish));
        self.read(|held| {
            if !held.is_somebody(who, now) {
                return Err(Error::new(Exit::Refused, format!("{who} has no token that still holds"))
                    .hint("an administrator makes another one of that name: thalweg token new"));
            }
            for (verb, endpoint, path) in needs {
                // Of what is no path, such as generated content, only whoever may reach the whole endpoint may ask.
                let names = relative_path(path).unwrap_or_default();
                if !held.allows(who, verb, endpoint, &names, now) {
                    let place = format!("{endpoint}:{}", model::name::Escaped(path));
                    let text = format!("{who} may not {} {place}", verb.word());
                    let hint =
                        format!("an administrator allows it: thalweg rule add 'allow {who} {} {place}'", verb.word());
                    return Err(Error::new(Exit::Refused, text).hint(hint));
                }
            }
            match &beside {
                Some(names) if !held.allows(who, Verb::Write, &wish.facts.to, names, now) => {
                    let place = format!("{}:{}", wish.facts.to, model::name::Escaped(&model::name::join(names)));
                    let text = format!("{who} may not write {place}, where backups or the list of a single file go");
                    Err(Error::new(Exit::Refused, text)
                        .hint("end the destination with a slash: it is a directory then, and holds them itself"))
                }
                _ => Ok(()),
            }
        })
    }

    /// Whether any rule speaks of an endpoint for somebody.
    pub fn knows_endpoint(&self, who: &Principal, endpoint: &str) -> bool {
        who.is_admin()
            || self.read(|held| held.rules.iter().any(|(_, rule)| rule.who == who.name && rule.endpoint == endpoint))
    }
}

#[cfg(test)]
mod tests;
