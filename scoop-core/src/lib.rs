//! The protocol of structured cooperation, as pure functions over values.
//!
//! A message handler is a *saga*: a list of transactional steps. A step starts only when every handler of every message
//! that the previous step emitted has finished. This crate implements that rule: it determines the next move of a run
//! ([`Continuation::of`]) and the conclusion from its outcome ([`Call::conclude`], [`Record::conclude`]). It uses no
//! database, clock, randomness or task: its input is facts, its output decisions. Therefore the same code runs on
//! PostgreSQL, in a simulation and in a test.
//!
//! Users depend on `scoop-saga` instead, which re-exports what they need.

mod attempt_history;
mod caller;
mod changed_definition;
mod changed_saga;
mod context;
mod continuation;
mod deadline;
mod decision;
mod entity;
mod error;
mod event;
mod failure;
mod failure_code;
mod find_by;
mod finite;
mod interrupted;
mod join_incomplete;
mod lineage;
mod message;
mod named_type;
mod next;
mod priority;
mod report;
mod rollback;
mod run;
mod run_wait;
mod saga;
mod schedule;
mod signal;
mod sleep;
mod stored;
mod text;
mod timestamp;
mod trace_context;
mod trace_point;
mod unauthorized;
pub mod wait;
mod window;

pub use attempt_history::AttemptHistory;
pub use caller::Caller;
pub use context::{Context, ContextError, ContextKey};
pub use continuation::{
    Action, Call, Conclusion, Continuation, Emission, Fate, NextExecution, Record, Required, Returned, Stuck,
};
pub use deadline::{Deadline, DeadlineKind, Direction, time_keys};
pub use decision::{DecidedMessage, Decision, Rejection};
pub use entity::{Application, Applies, Entity, EntityKey, EntityType};
pub use error::{Error, FromError, Result, Traced};
pub use event::{Event, EventKind, OPERATOR};
pub use failure::{FAILURE_CAUSES_MAX, FAILURE_TEXT_BYTES_MAX, Failure, Frame};
pub use failure_code::{CODE_CHARS_MAX, CodedError, FailureCode};
pub use find_by::{
    FIND_FIELDS_MAX, FIND_NAME_BYTES_MAX, FIND_TEXT_BYTES_MAX, FindField, FindKind, FoundBy, UnfitField,
    find_time, found_by,
};
pub use interrupted::Interrupted;
pub use join_incomplete::JoinIncomplete;
pub use lineage::Lineage;
pub use message::{HasReply, Message, RetentionTimes, TOPIC_BYTES_MAX};
#[doc(hidden)]
pub use named_type::{NameKind, NamedType};
pub use next::{ContinueAsNew, Next, With};
pub use priority::Priority;
pub use rollback::{Instance, Plan, RollbackNames, RollbackPart, Undoes, output_name, read_output_name};
pub use run::{ChildFailure, Execution, Path, RollbackProgress, Run, Suspension};
pub use run_wait::{KEY_BYTES_MAX, SignalKey, Wait, refused_key};
pub use saga::{
    Definition, Delivery, NAME_CHARS_MAX, NameError, RecordedStep, STEP_NAME_CHARS_MAX, StepDefinition,
    StepKind, is_signal_wait, visible_step,
};
pub use schedule::{Missed, Overlap, Recurrence, Schedule};
pub use signal::{SentSignal, Signal};
pub use sleep::SleepUntil;
#[doc(hidden)]
pub use stored::Json;
pub use stored::Stored;
pub use text::Escaped;
pub use trace_context::{BadTraceparent, TraceContext};
#[doc(hidden)]
pub use trace_point::TryOperator;
pub use unauthorized::Unauthorized;
pub use window::{Beginning, Cut, EntriesRead, Entry, Rest, Window};

#[doc(hidden)]
pub use inventory as __inventory;
