//! Streams of events that are open: how many, whose, and the one thread that wakes them when there is news.

use crate::problem::Problem;
use hub::{Hub, Principal};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

const STREAMS_MAX: usize = 2000;
/// Of one that is no administrator.
const OF_ONE_MAX: usize = 20;
/// How long the thread waits before it looks whether it is still wanted.
const WAIT: Duration = Duration::from_millis(500);

pub struct Streams {
    open: Mutex<HashMap<String, usize>>,
    newest: watch::Receiver<i64>,
}

/// The right to one stream, given back when it ends.
pub struct Place {
    streams: Arc<Streams>,
    who: String,
}

impl Streams {
    pub fn start(hub: Hub) -> std::io::Result<Arc<Streams>> {
        let (sender, newest) = watch::channel(0);
        let wake = move || {
            let mut last = 0;
            while let Some(now) = hub.wait_for_event(last, WAIT) {
                if now != last && sender.send(now).is_err() || sender.is_closed() {
                    break;
                }
                last = now;
            }
        };
        std::thread::Builder::new().name("events".into()).spawn(wake)?;
        Ok(Arc::new(Streams { open: Mutex::default(), newest }))
    }

    /// Changes when there are new events; ends with the hub.
    pub fn news(&self) -> watch::Receiver<i64> {
        self.newest.clone()
    }

    pub fn place(self: &Arc<Self>, who: &Principal) -> Result<Place, Problem> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.get(&who.name).copied().unwrap_or(0);
        let is_full = open.values().sum::<usize>() >= STREAMS_MAX || !who.is_admin() && own >= OF_ONE_MAX;
        if is_full {
            return Err(Problem::too_many("streams of events are open", Duration::from_secs(5)));
        }
        open.insert(who.name.clone(), own + 1);
        Ok(Place { streams: self.clone(), who: who.name.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.who);
            }
        }
    }
}
