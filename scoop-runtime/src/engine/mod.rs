//! Executes the sagas of this process: claim, execute, settle, wake.
//!
//! Correctness rests on the epoch of a run: each claim and each settlement raises it, and each settlement demands it.
//! So a worker whose run was taken over writes nothing. Notifications only reduce latency; polling finds what they
//! miss.
//!
//! A claim takes ready runs, one for each free slot ([`claim`], [`limits`], [`local_start`]). [`execute`] asks the protocol
//! for the next move of a run and calls its user code. [`settle`] persists the conclusion, in the transaction of the step or
//! with other runs. [`parents`] wakes the parent of an ended run, [`notify`] the other workers. `ARCHITECTURE.md` has the
//! drawing.

// Start and end of all tasks.
mod tasks;

// Selection of the runs that execute here: claims, launches and wake-ups of this process, due times, dead workers.
mod claim;
mod deadlines;
mod gauges;
mod join_expiry;
pub(crate) mod launch_batcher;
mod launched_topics;
mod limits;
mod liveness;
mod local_start;
mod notify;
mod parents;
mod reconcile;
mod registration;
mod retention;
mod schedule;
mod signal_delivery;
mod timer;

// Execution of one run, step by step.
mod execute;
mod execution;
mod handover;
mod outcome;
mod report;
mod rollback_history;
mod user_code;
mod wait_strategy;
mod why;

// Persistence of its conclusions: in the transaction of a step, or batched with other runs.
mod settle;

// Shared state.
mod admission;
mod decisions;
mod health_state;
mod new_launches;
mod shared;
mod slots;
mod step_stop_signals;
mod suspects;
mod topology;
mod wakeups;

pub(crate) use admission::Admission;
pub use health_state::EngineState;
pub(crate) use local_start::{launch, send_signal};
pub(crate) use shared::Engine;
pub(crate) use tasks::start;
pub(crate) use user_code::running::current_step;
