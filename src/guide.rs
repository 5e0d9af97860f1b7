//! The guide: a page for each part of the language, in the order in which one reads them. Most begin with a
//! complete program. The module `reference` has what is looked up.

/// A module for each page of a folder.
macro_rules! pages {
    ($folder:literal: $($page:ident)*) => {
        $(
            #[doc = include_str!(concat!("../docs/", $folder, stringify!($page), ".md"))]
            pub mod $page {}
        )*
    };
}

pages! { "":
    sagas messages context time failures error_queue delivery signals several_topics endless commands limits
    rehearsals memory changing operations finding pause retention telemetry connections security
}

/// What is looked up rather than read.
pub mod reference {
    pages! { "reference/":
        command_line web tables runs processes topology events telemetry examples
        failures signals joins strategies commands limits pause retention changing connections security
        queues performance
    }
}
