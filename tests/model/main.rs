//! Models of the protocol. Each covers one part of it, and all its states are visited.
//!
//! A move of a model is a part of a transaction that READ COMMITTED keeps free of interleaving: to take a
//! statement's snapshot, to wait for a lock and look at the row again, to commit. A snapshot grows stale while
//! other moves happen. Each model also has faults in the protocol. Every fault has to be detected by the
//! property that it breaks.
//!
//! * [`command`]: commands, their emitters, and the processes that decide them in batches (`engine/decisions.rs`,
//!   `entity_lock_free.sql`, `entity_insert.sql`, `entity_write.sql`, the fence of `scoop.settle`).
//! * [`deciding`]: a parent that waits for a number of its children by a strategy, and the processes that decide (`scoop.decide_wait`,
//!   `run_waited_children.sql`, `run_wake.sql`).
//! * [`fence`]: a run whose owner dies, is presumed dead, or loses answers (`run_claim.sql`, `run_free.sql`,
//!   `worker_wait_for_claims.sql`, `worker_reap.sql`, the epochs of `scoop.settle`).
//! * [`give_up`]: a hierarchy that is cancelled, or overdue, while it goes on (`run_mark_cancelled.sql`,
//!   `run_delete_pending.sql`, `run_mark_overdue.sql`, the refusals of `scoop.settle`).
//! * [`repair`]: rollbacks that failed, and operators who decide (`run_lock_lineage.sql`, `run_repair.sql`).
//! * [`waking`]: a parent, its children, and the statements that wake it (`run_wake.sql`, `run_wake_missed.sql`).
//! * [`rollback`]: a tree of runs that fail and are rolled back, as decided by `scoop_core`.
//!
//! Change the model together with the statement that it names. States, moves and times are printed:
//! `cargo test --test model -- --nocapture`.

mod check;
mod command;
mod deciding;
mod fence;
mod give_up;
mod repair;
mod rollback;
mod waking;
