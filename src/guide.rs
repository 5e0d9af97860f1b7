//! The examples of the guide, as tests. The guide is a book: `docs/SUMMARY.md` lists its pages, `docs/site.py` builds it.

/// The examples of each page of a folder.
macro_rules! pages {
    ($folder:literal: $($page:ident)*) => { $(
        #[doc = include_str!(concat!("../docs/", $folder, stringify!($page), ".md"))]
        mod $page {}
    )* };
}

pages! { "":
    why coming_from faq comparison
    sagas messages context failures delivery time rehearsals memory changing
    signals edges several_topics commands isolation continue_as_new limits error_queue
    operations finding pause retention telemetry connections security production stability
}

#[doc = concat!("```rust,standalone_crate\n", include_str!("../docs/comparison/scoop.rs"), "```")]
mod compared {}

mod reference {
    pages! { "reference/":
        command_line web tables runs processes topology events telemetry examples performance
        failures signals joins strategies commands limits pause retention changing connections security
    }
}
