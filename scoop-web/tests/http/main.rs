//! The pages over HTTP, on a real PostgreSQL: what they show, what they refuse, and what their actions do.

mod access;
mod acting;
mod finding;
mod shop;
