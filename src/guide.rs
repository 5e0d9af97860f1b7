//! The guide: a page for each part of the language, in the order in which one reads them. Most begin with a
//! complete program. The module `reference` has what is looked up.

/// A module for each page of a folder.
macro_rules! pages {
    ($folder:literal: $($page:ident)*) => { $(
        #[doc = include_str!(concat!("../docs/", $folder, stringify!($page), ".md"))]
        pub mod $page {}
    )* };
}

pages! { "":
    why coming_from faq
    sagas messages context failures delivery time rehearsals memory changing
    signals edges several_topics commands isolation continue_as_new limits error_queue
    operations finding pause retention telemetry connections security production stability
}

#[doc = concat!(
    include_str!("../docs/comparison.md"),
    "### Scoop\n\n```rust,standalone_crate\n", include_str!("../docs/comparison/scoop.rs"),
    "```\n\n### River\n\n```text\n", include_str!("../docs/comparison/river.rs"),
    "```\n\n### DBOS\n\n```text\n", include_str!("../docs/comparison/dbos.rs"),
    "```\n\n### Temporal\n\n```text\n", include_str!("../docs/comparison/temporal.rs"), "```",
)]
pub mod comparison {}

#[doc = include_str!("../docs/reference/README.md")]
pub mod reference {
    pages! { "reference/":
        command_line web tables runs processes topology events telemetry examples performance
        failures signals joins strategies commands limits pause retention changing connections security
    }
}
