//! The log of an item, or of a round that acknowledges none: the hand-outs of the item, and the round that counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Entry, Round};

/// An entry of such a log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LogNote {
    /// A holder got the item.
    HandedOut { receipt: String },
    /// The holder gave the item back.
    Abandoned { epoch: u64 },
    /// The holder is done with the item, with this round.
    Round { epoch: u64, round: Round },
    /// The round that counts was carried out.
    Done,
}

/// The state that follows from a log. Once it has a round, later entries do not change the round.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The round that counts.
    pub(super) round: Option<Round>,
    /// Whether it was carried out.
    pub(super) done: bool,
    handed_out: BTreeMap<String, u64>,
    /// The epoch under which a round counts now. It is 0 before the first hand-out, as always in the log of a round
    /// that acknowledges nothing.
    open: Option<u64>,
}

impl LogNote {
    /// The entry for this log, under a unique key.
    pub(super) fn entry(&self, log: &str) -> Entry {
        let key = match self {
            Self::HandedOut { receipt } => format!("handed out/{receipt}"),
            Self::Abandoned { epoch } => format!("abandoned/{epoch}"),
            Self::Round { epoch, .. } => format!("round/{epoch}"),
            Self::Done => "done".to_owned(),
        };
        Entry { stream: log.to_owned(), key, body: serde_json::json!(self) }
    }
}

impl Log {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let begun = Self { open: Some(0), ..Self::default() };
        let notes = entries.iter().filter_map(|entry| LogNote::deserialize(&entry.body).ok());
        notes.fold(begun, Self::followed_by)
    }

    fn followed_by(mut self, note: LogNote) -> Self {
        match note {
            LogNote::Done => self.done = true,
            _ if self.round.is_some() => {}
            LogNote::HandedOut { receipt } => {
                let epoch = self.handed_out.values().max().map_or(1, |newest| newest + 1);
                self.open = Some(epoch);
                self.handed_out.insert(receipt, epoch);
            }
            LogNote::Abandoned { epoch } => self.open = self.open.filter(|open| *open != epoch),
            LogNote::Round { epoch, round } => {
                self.round = Some(round).filter(|_| self.open == Some(epoch));
            }
        }
        self
    }

    /// The epoch of the hand-out with this receipt, if no round counted before it.
    pub(super) fn epoch_of(&self, receipt: &str) -> Option<u64> {
        self.handed_out.get(receipt).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(notes: &[LogNote]) -> Log {
        Log::of(&notes.iter().map(|note| note.entry("log")).collect::<Vec<_>>())
    }

    fn handed_out(receipt: &str) -> LogNote {
        LogNote::HandedOut { receipt: receipt.to_owned() }
    }

    fn round(epoch: u64, says: &str) -> LogNote {
        LogNote::Round { epoch, round: Round::new().append("stream", says, says.into()) }
    }

    fn counts(log: &Log) -> Option<&str> {
        log.round.as_ref().map(|round| &*round.append[0].key)
    }

    #[test]
    fn the_round_of_the_last_holder_counts() {
        let log = log(&[handed_out("a"), handed_out("b"), round(1, "late"), round(2, "in time")]);
        assert_eq!(counts(&log), Some("in time"));
        assert_eq!((log.epoch_of("a"), log.epoch_of("b"), log.done), (Some(1), Some(2), false));
    }

    #[test]
    fn notes_after_the_round_change_nothing() {
        let log =
            log(&[handed_out("a"), round(1, "first"), handed_out("b"), round(2, "second"), LogNote::Done]);
        assert_eq!(counts(&log), Some("first"));
        assert_eq!((log.epoch_of("b"), log.done), (None, true));
    }

    #[test]
    fn round_after_an_abandon_is_void() {
        let abandoned = |epoch| LogNote::Abandoned { epoch };
        assert_eq!(counts(&log(&[handed_out("a"), abandoned(1), round(1, "late")])), None);
        let by_another = [handed_out("a"), handed_out("b"), abandoned(1), round(2, "in time")];
        assert_eq!(counts(&log(&by_another)), Some("in time"));
    }

    #[test]
    fn round_with_epoch_zero_is_void_for_a_dequeued_item() {
        assert_eq!(counts(&log(&[round(0, "launch")])), Some("launch"));
        assert_eq!(counts(&log(&[handed_out("a"), round(0, "unknown")])), None);
    }
}
