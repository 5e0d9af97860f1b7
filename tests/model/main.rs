//! Models of the protocol, each of one part of it, visited in all their states.
//!
//! A move of a model is as much of a transaction as READ COMMITTED lets nobody come between: to take a
//! statement's snapshot, to wait for a lock and look at the row again, to commit. What stands in a snapshot
//! grows old while others move. Each model also comes with faults in the protocol, and every one of them
//! has to be found out, by the property that it breaks.
//!
//! * [`fence`]: a run whose owner dies, or is taken for dead, or loses answers (`run_claim.sql`, `run_disown.sql`,
//!   `worker_pause.sql`, `worker_reap.sql`, the epochs of `0006_settle.sql`).
//! * [`give_up`]: a hierarchy that is cancelled, or late, while it goes on (`cancel_mark.sql`, `cancel_drop.sql`,
//!   `run_overdue.sql`, what `0006_settle.sql` refuses).
//! * [`join`]: a parent, its children, and who wakes it (`run_wake.sql`, `run_sweep.sql`).
//! * [`rollback`]: a tree of runs that fail and are undone, as `scoop_core` says.
//!
//! Whoever changes one of the statements named here changes its model. States, moves and times are printed:
//! `cargo test --test model -- --nocapture`.

mod check;
mod fence;
mod give_up;
mod join;
mod rollback;
