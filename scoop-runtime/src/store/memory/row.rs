//! A row of the working set, and its place in the indices.

use std::collections::BTreeMap;
use std::sync::Arc;

use scoop_core::{Context, Failure, Lineage, Priority, SignalKey, TraceContext, Wait};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::entity::StoredEntityEvent;
use crate::model::run::RowState;
use crate::store::entity::StoredEntity;
use crate::store::{ClaimKey, FormerAttempts};
use std::collections::BTreeSet;

/// An unfinished run of a handler. The fields correspond to the columns of the table `run`.
#[derive(Clone, Debug)]
pub(super) struct WorkingRow {
    pub(super) parent: Option<Uuid>,
    pub(super) lineage: Lineage,
    pub(super) message_id: Uuid,
    pub(super) topic: Arc<str>,
    pub(super) handler: Arc<str>,
    pub(super) state: RowState,
    pub(super) ready_at: OffsetDateTime,
    /// Since when it could have begun, and when it did.
    pub(super) queued_at: Option<OffsetDateTime>,
    pub(super) began_at: Option<OffsetDateTime>,
    pub(super) owner: Option<Uuid>,
    pub(super) epoch: i64,
    pub(super) unclaimed_epoch: i64,
    pub(super) rolling_back: bool,
    pub(super) rollback_requested: bool,
    pub(super) step: Option<String>,
    pub(super) jump: Option<String>,
    pub(super) definition: Option<i32>,
    pub(super) iteration: Option<i32>,
    pub(super) handler_iteration: Option<i32>,
    pub(super) suspensions: i32,
    pub(super) completions: Option<BTreeMap<String, u32>>,
    pub(super) outputs: Option<BTreeMap<String, Value>>,
    pub(super) context: Context,
    pub(super) replied: bool,
    pub(super) giving_up: bool,
    pub(super) give_up_at: Option<OffsetDateTime>,
    pub(super) rollback_since: Option<OffsetDateTime>,
    pub(super) failure: Option<Failure>,
    pub(super) rollback_failure: Option<Failure>,
    pub(super) last_event_at: OffsetDateTime,
    pub(super) attempts: i32,
    pub(super) retries: i32,
    pub(super) tried_under: Vec<i32>,
    /// Attempts in a row whose outcome is unknown, if the reason says so.
    pub(super) unknown_attempts: i32,
    pub(super) reason: Option<String>,
    /// The one definition under which it continues; 0 for the current one.
    pub(super) reserved_for: i32,
    pub(super) refused_by: Vec<i32>,
    /// The signal that it awaits while it is ready.
    pub(super) signal: Option<SignalKey>,
    /// Of a ready run: a strategy decides again when at most so many of its children have not ended.
    pub(super) children_max: Option<i32>,
    /// What it waits for, while strategies decide about messages that it has launched, or once one of these has said that a
    /// launch has failed.
    pub(super) wait: Option<Wait>,
    /// The span that sent the signal that it got, while its newest step awaits one.
    pub(super) signalled_by: Option<TraceContext>,
    /// How many executions there were before the newest one.
    pub(super) execution: i32,
    pub(super) execution_since: Option<OffsetDateTime>,
    /// The message whose payload counts, if it is not `message_id`.
    pub(super) payload_of: Option<Uuid>,
    /// The key under which its newest claim counts.
    pub(super) limit_key: Option<String>,
    /// Its `ready_at` before it was parked.
    pub(super) parked_since: Option<OffsetDateTime>,
    /// Orders runs that are ready since the same moment: the first to become ready is claimed first.
    pub(super) order: u64,
}

/// What became of a run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "simulation"), expect(unreachable_pub, reason = "only a simulation shows it"))]
pub enum RunOutcome {
    /// It committed.
    Committed,
    /// It is rolled back.
    RolledBack,
    /// It never began.
    Dropped,
}

/// A run that has ended: a row of `ended_run`.
#[derive(Clone, Debug)]
pub(super) struct EndedRow {
    pub(super) outcome: RunOutcome,
    pub(super) last: WorkingRow,
}

/// The entry of a row in the indices, apart from its id.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum IndexKey {
    /// With its priority, whether it is a suspect, and what it waits for in another index.
    Ready(OffsetDateTime, u64, Priority, bool, Option<Need>),
    Running(Option<Uuid>),
    /// With the time at which it has to give up, unless it does already.
    Waiting(Option<OffsetDateTime>),
    Ended,
    Stuck(OffsetDateTime),
    Failed(OffsetDateTime),
}

/// What a ready run waits for that is not due.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Need {
    Signal(SignalKey),
    /// A strategy decides about the children.
    Children,
    /// The limit of this key, since that time.
    Parked(String, OffsetDateTime),
}

impl WorkingRow {
    /// A pending run of this message, which may begin at once.
    pub(super) fn new(
        lineage: Lineage,
        message_id: Uuid,
        topic: Arc<str>,
        handler: Arc<str>,
        last_event_at: OffsetDateTime,
    ) -> Self {
        Self {
            parent: None,
            lineage,
            message_id,
            topic,
            handler,
            state: RowState::Ready,
            ready_at: last_event_at,
            queued_at: None,
            began_at: None,
            owner: None,
            epoch: 0,
            unclaimed_epoch: 0,
            rolling_back: false,
            rollback_requested: false,
            step: None,
            jump: None,
            definition: None,
            iteration: None,
            handler_iteration: None,
            suspensions: 0,
            completions: None,
            outputs: None,
            context: Context::default(),
            replied: false,
            giving_up: false,
            give_up_at: None,
            rollback_since: None,
            failure: None,
            rollback_failure: None,
            last_event_at,
            attempts: 0,
            retries: 0,
            tried_under: vec![],
            unknown_attempts: 0,
            reason: None,
            reserved_for: 0,
            refused_by: vec![],
            signal: None,
            children_max: None,
            wait: None,
            signalled_by: None,
            execution: 0,
            execution_since: None,
            payload_of: None,
            limit_key: None,
            parked_since: None,
            order: 0,
        }
    }

    pub(super) fn root(&self) -> Uuid {
        self.lineage.root_id()
    }

    pub(super) fn id(&self) -> Uuid {
        self.lineage.id()
    }

    pub(super) fn key(&self) -> ClaimKey {
        ClaimKey { root: self.root(), id: self.id(), epoch: self.epoch }
    }

    /// The key under which it was claimed the last time, as in `scoop.held_key`.
    pub(super) fn serial_key(&self) -> Option<&String> {
        let is_claimed = match self.state {
            RowState::Ready => self.parked_since.is_none(),
            state => state != RowState::Ended,
        };
        self.limit_key.as_ref().filter(|_| is_claimed)
    }

    pub(super) fn priority(&self) -> Priority {
        Priority::of(&self.context)
    }

    pub(super) fn queue(&self) -> ClaimQueue {
        (self.handler.clone(), self.topic.clone(), self.reserved_for)
    }

    pub(super) fn index_key(&self) -> IndexKey {
        match self.state {
            RowState::Ready => {
                let parked = || Some(Need::Parked(self.limit_key.clone()?, self.parked_since?));
                let children = || self.children_max.map(|_| Need::Children);
                let waits_for = self.signal.clone().map(Need::Signal).or_else(parked).or_else(children);
                IndexKey::Ready(self.ready_at, self.order, self.priority(), self.is_suspect(), waits_for)
            }
            RowState::Running => IndexKey::Running(self.owner),
            RowState::Waiting => IndexKey::Waiting(self.give_up_at.filter(|_| !self.giving_up)),
            RowState::Ended => IndexKey::Ended,
            RowState::Stuck => IndexKey::Stuck(self.ready_at),
            RowState::Failed => IndexKey::Failed(self.ready_at),
        }
    }

    /// Whether a claim under this key still holds.
    pub(super) fn is_claimed_under(&self, key: ClaimKey) -> bool {
        self.epoch == key.epoch && self.state == RowState::Running
    }

    pub(super) fn is_overdue(&self, now: OffsetDateTime) -> bool {
        self.giving_up || self.give_up_at.is_some_and(|at| at <= now)
    }

    /// Whether it waits for its children, or for a strategy that decides about them.
    pub(super) fn waits_for_children(&self) -> bool {
        self.state == RowState::Waiting || self.state == RowState::Ready && self.children_max.is_some()
    }

    /// The time from which it is ready if its children have ended; see `scoop.wakes_at` in the migrations.
    pub(super) fn wakes_at(&self, now: OffsetDateTime) -> OffsetDateTime {
        let waits_on = self.state == RowState::Waiting && self.ready_at > self.last_event_at;
        if waits_on { self.ready_at.max(now) } else { now }
    }

    /// The time from which it is ready, apart from the limit of its key.
    pub(super) fn due_at(&self) -> OffsetDateTime {
        self.parked_since.filter(|_| self.state == RowState::Ready).unwrap_or(self.ready_at)
    }

    /// The time by which it is ordered in its queue.
    pub(super) fn queue_time(&self) -> OffsetDateTime {
        self.priority().queue_time(self.due_at())
    }

    pub(super) fn goes_on(&self) -> bool {
        self.state != RowState::Failed
    }

    /// Whether it may be what ends its workers; see `scoop.is_suspect` in the migrations.
    pub(super) fn is_suspect(&self) -> bool {
        self.unknown_attempts >= 2 && self.attempts + self.retries > 0
    }

    /// Whether it has not begun, be it for the first time or again.
    pub(super) fn is_unclaimed(&self) -> bool {
        self.epoch == self.unclaimed_epoch
    }

    /// Prepares the counts for one more failed attempt by a program with this definition. Former attempts no longer
    /// count unless they were of the same step; see `scoop.tried` in the migrations.
    pub(super) fn tried(&mut self, definition: Option<i32>, former: Option<FormerAttempts>) {
        if self.attempts + self.retries == 0 {
            self.tried_under.clear();
        }
        let newest = self.tried_under.last().copied();
        let former = former.unwrap_or(match definition.is_none() || newest == definition {
            true => FormerAttempts::OfSameStep,
            false => FormerAttempts::OfOtherStep,
        });
        if former == FormerAttempts::OfOtherStep {
            (self.attempts, self.retries) = (0, 0);
        }
        if let Some(definition) = definition {
            self.tried_under.retain(|earlier| *earlier != definition);
            self.tried_under.push(definition);
        }
    }

    /// Releases it, so that any worker may claim it.
    pub(super) fn free(&mut self, now: OffsetDateTime) {
        (self.state, self.owner, self.ready_at) = (RowState::Ready, None, now);
    }

    /// Releases it after it was stuck. If it awaits a signal and does not give up, it awaits that again, for as long as before.
    pub(super) fn retry(&mut self, now: OffsetDateTime) {
        let waits_until = self.parked_since.take().filter(|_| !self.giving_up && self.signal.is_some());
        self.free(waits_until.unwrap_or(now));
    }
}

/// The same, and the definition that runs are reserved for.
pub(super) type ClaimQueue = (Arc<str>, Arc<str>, i32);

impl WorkingRow {
    /// Whether a cancellation makes it give up: it does not yet, and is no part of a rollback.
    pub(super) fn can_give_up(&self) -> bool {
        !self.giving_up && self.rollback_since.is_none()
    }
}

/// A run: its hierarchy and its id.
pub(super) type RowKey = (Uuid, Uuid);

/// A row of `entity`, with its rows of `entity_event`, of which the first has version 1.
#[derive(Default)]
pub(super) struct EntityRow {
    pub(super) now: StoredEntity,
    pub(super) events: Vec<StoredEntityEvent>,
}

/// The rows of `join_member`.
#[derive(Default)]
pub(super) struct JoinMembers {
    /// Ordered by time.
    pub(super) waiting: Vec<MemberRow>,
    pub(super) joined: BTreeMap<Uuid, JoinedRow>,
}

pub(super) struct JoinedRow {
    pub(super) message: Uuid,
    pub(super) saga: String,
    pub(super) root: Uuid,
}

pub(super) struct MemberRow {
    pub(super) run: Uuid,
    pub(super) saga: String,
    pub(super) key: String,
    pub(super) topic: String,
    pub(super) message: Uuid,
    pub(super) payload: Value,
    pub(super) expires_at: Option<OffsetDateTime>,
    pub(super) traceparent: Option<String>,
}

/// A signal that is not delivered: until when it is kept, when it was sent, and its id. The first one goes first.
pub(super) type WaitingSignal = (OffsetDateTime, OffsetDateTime, Uuid);

#[derive(Clone, Debug)]
pub(super) struct SignalRow {
    pub(super) to: SignalKey,
    pub(super) payload: Value,
    #[cfg(feature = "simulation")]
    pub(super) sent_at: OffsetDateTime,
    #[cfg(feature = "simulation")]
    pub(super) expires_at: OffsetDateTime,
    pub(super) delivered_at: Option<OffsetDateTime>,
    pub(super) reached: u64,
    pub(super) trace: Option<TraceContext>,
}

/// The runs that are parked, by handler and key, those first that were ready first.
pub(super) type Parked = BTreeMap<(Arc<str>, String), BTreeSet<(OffsetDateTime, RowKey)>>;
