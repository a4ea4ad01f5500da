//! How far the receiver of a source that is followed is behind it: told every second, and once more in the end. What is settled is
//! forgotten on the way.

use super::{File, Following};
use crate::job::Followed;
use model::ObjectId;
use model::follow::LagAlarm;
use model::progress::Behind;
use os::time::Instant;
use std::time::Duration;

const LAG_INTERVAL: Duration = Duration::from_secs(1);

impl Following<'_> {
    /// How far the receiver is behind.
    pub(super) fn tell_lag(&mut self) {
        if self.lag_told.elapsed() < LAG_INTERVAL {
            return;
        }
        self.lag_told = Instant::now();
        let mut book = self.job.book.lock().unwrap();
        let is_settled = |id: ObjectId| book.split.is_settled(id.0);
        let twice = &self.sealed_twice;
        self.files.retain(|number, file| {
            file.ended.is_none() || file.is_missed || !is_settled(file.object.entry.id) || twice.contains(number)
        });
        self.resting.retain(|_, id| !is_settled(*id));
        self.resting.shrink_to_fit();
        let lag = book.lags.take(self.lag_told);
        let (waiting, mut bytes) = self.waiting.amount();
        let mut files = waiting;
        for file in self.files.values().filter(|file| !file.is_missed) {
            let id = file.object.entry.id.0;
            if let Some((claimed, lacking)) = book.split.frontier(id) {
                bytes += file.available_bytes.saturating_sub(claimed) + lacking;
                files += 1;
            }
        }
        let is_settled = book.split.open() <= files - waiting;
        drop(book);
        if self.has_surplus && is_settled {
            store::give_back_memory();
            self.has_surplus = false;
        }
        let is_alarmed = match self.alarm {
            Some(LagAlarm::Time(most)) => lag.oldest.is_some_and(|oldest| oldest >= most),
            Some(LagAlarm::Bytes(most)) => bytes >= most,
            None => false,
        };
        let behind = Behind { bytes, files, lag, is_alarmed, is_over: self.is_over };
        *self.job.progress.behind.lock().unwrap() = Some(behind);
        self.say(Followed::Lag(behind));
        if is_alarmed != self.alarms.since.is_some() {
            self.alarms.change(is_alarmed);
            self.say(Followed::LagAlarm(behind));
        }
    }

    /// Lets go of a file, and of what is remembered of it under the id that it had on the wire.
    pub(super) fn let_go(&mut self, number: u64) -> Option<File> {
        let file = self.files.remove(&number)?;
        if !file.is_missed {
            let mut book = self.job.book.lock().unwrap();
            book.failed.remove(&file.object.entry.id.0);
            book.lags.forget(file.object.entry.id.0);
        }
        Some(file)
    }

    /// The last word on lag is that of all of the time.
    pub(super) fn tell_whole(&mut self) {
        self.alarms.change(false);
        let lag = self.job.book.lock().unwrap().lags.whole();
        let progress = &self.job.progress;
        if let Some(behind) = &mut *progress.behind.lock().unwrap() {
            behind.lag = lag;
        }
        if self.alarms.count > 0 {
            let times = if self.alarms.count == 1 { "once".to_owned() } else { format!("{} times", self.alarms.count) };
            let seconds = self.alarms.lasted.as_secs();
            progress
                .note(format!("the destination was behind by more than --lag-alarm {times}, for {seconds} s in all"));
        }
    }
}
