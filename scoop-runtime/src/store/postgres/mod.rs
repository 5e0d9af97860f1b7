//! The store on PostgreSQL. The only module that speaks SQL.

pub(super) mod idle_cache;
pub(super) mod step_transactions;
