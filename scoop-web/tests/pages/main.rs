//! The pages on a real PostgreSQL, over HTTP and in a browser: what they show, what they refuse, and what their actions do.

mod access;
mod actions;
mod api;
mod browser;
mod browsing;
mod changes;
mod entities;
mod error_queue;
mod failures;
mod health;
mod hierarchy;
mod hostile_texts;
mod many;
mod overview;
mod pause;
mod picture;
mod play;
mod run;
mod runs;
mod schedules;
mod shop;
mod signal;
mod topology;
