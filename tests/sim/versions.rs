//! Versions of sagas: changes of a program while runs are under way.
//!
//! A step has a number in the scripts, which it keeps when it is renamed or moved. The original versions are in
//! [`super::sagas`], and have the number 0. A version that moves a step knows its names in other versions: a
//! program cannot recognize a step with an unknown name as one of its own.

use scoop::prelude::*;

use crate::act::{Act, Left as _, Mark0, Mark1, Mark2, Mark3, Mark4, Mark5, One, Zero};
use crate::sagas::{Alpha, Beta};
use crate::scenario::Scenario;
use crate::world::{Alive, Code};

macro_rules! versions {
    (
        $saga:literal, $topic:ident, $name:ident, $steps:ident, $provide:ident, $definition:ident, $original:ident:
        $($number:literal $version:ident {$(
            $variant:ident $step:ident = $at:literal -> $mark:ident $(or $jumps:ident)? $(only $stays:ident)? ($($input:ident: $value:ty),*)
            [$($settings:tt)*] $(undo $undo:ident)? $(handle $handle:ident)? $(clean $clean:ident)?;
        )*})*
    ) => {
        $(mod $version {
            use super::*;

            pub(super) struct $name(pub(super) Alive);

            #[saga(name = $saga)]
            #[subscribes($topic)]
            impl $name {
                const STEPS: &[(usize, $steps)] = &[$(($at, $steps::$variant)),*];

                $(
                    #[step(
                        $($settings)*
                        $(rollback = $undo,)?
                        $(on_child_failure = $handle,)?
                        $(finally = $clean,)?
                    )]
                    async fn $step(
                        &self,
                        scope: &mut Scope<'_>,
                        message: &$topic,
                        $($input: $value),*
                    ) -> Result<$(With<$jumps, $mark>)? $($stays)?> {
                        let act = Act::new(&self.0, scope, Code::Step, &message.emit, $at);
                        $(
                            if let Some(mark) = $input.left() {
                                act.remembers(Some(mark));
                            }
                        )*
                        let mark = act.mark();
                        let wish = act.run().await?;
                        $(Ok(wish.next_of::<$jumps>(Self::STEPS).with($mark(mark))))?
                        $({
                            let _ = wish;
                            Ok($stays(mark))
                        })?
                    }

                    $(async fn $undo(
                        &self,
                        scope: &mut Scope<'_>,
                        message: &$topic,
                        mark: &$mark,
                        _: &Failure,
                    ) -> Result<()> {
                        let act = Act::new(&self.0, scope, Code::Undo, &message.emit, $at);
                        act.undoes(&mark.0);
                        act.run().await.map(drop)
                    })?

                    $(async fn $handle(
                        &self,
                        scope: &mut Scope<'_>,
                        message: &$topic,
                        failure: &Failure,
                    ) -> Result<()> {
                        let act = Act::new(&self.0, scope, Code::OnChildFailure, &message.emit, $at);
                        act.handling(failure).run().await.map(drop)
                    })?

                    $(async fn $clean(&self, scope: &mut Scope<'_>, message: &$topic) -> Result<()> {
                        Act::new(&self.0, scope, Code::Finally, &message.emit, $at).run().await.map(drop)
                    })?
                )*
            }
        })*

        /// A program that has this version of the saga, too.
        pub(crate) fn $provide(builder: scoop::Builder, alive: &Alive, version: u8) -> scoop::Builder {
            let alive = alive.of(version);
            match version {
                $($number => builder.provide($version::$name(alive)).only::<$version::$name>(),)*
                _ => builder.provide($original(alive)).only::<$original>(),
            }
        }

        fn $definition(version: u8) -> scoop::Definition {
            match version {
                $($number => $version::$name::DEFINITION,)*
                _ => $original::DEFINITION,
            }
        }
    };
}

versions! {
    "alpha", Zero, Alpha, AlphaStep, provide_alpha, alpha, Alpha:
    1 inserted {
        First first = 0 -> Mark0 or AlphaStep () [] undo undo_first handle handle_first;
        Second second = 1 -> Mark1 only Mark1 (first: &Mark0) [] undo undo_second handle handle_second clean clean_up_second;
        Extra extra = 3 -> Mark3 or AlphaStep () [] undo undo_extra;
        Third third = 2 -> Mark2 or AlphaStep (second: Option<&Mark1>) [retry(max = 1, backoff = "30ms"),] undo undo_third;
    }
    2 first_and_last_inserted {
        Early early = 4 -> Mark4 or AlphaStep () [] undo undo_early;
        First first = 0 -> Mark0 or AlphaStep () [] undo undo_first handle handle_first;
        Second second = 1 -> Mark1 or AlphaStep (early: Option<&Mark4>) [] undo undo_second handle handle_second;
        Third third = 2 -> Mark2 or AlphaStep (first: Option<&Mark0>) [] undo undo_third;
        Late late = 5 -> Mark5 only Mark5 (third: Option<&Mark2>) [] undo undo_late clean clean_up_late;
    }
    3 renamed {
        Erste erste = 0 -> Mark0 or AlphaStep () [was = "first",] undo undo_first handle handle_first;
        Zweite zweite = 1 -> Mark1 only Mark1 (first: &Mark0) [was = "second",] undo undo_second clean clean_up_second;
        Dritte dritte = 2 -> Mark2 or AlphaStep (second: Option<&Mark1>) [was = "third",] undo undo_third;
    }
    4 reordered {
        Second second = 1 -> Mark1 or AlphaStep () [was = "zweite",] undo undo_second handle handle_second;
        First first = 0 -> Mark0 only Mark0 (second: Option<&Mark1>) [was = "erste",] undo undo_first clean clean_up_first;
        Third third = 2 -> Mark2 or AlphaStep () [was = "dritte",] undo undo_third;
    }
    5 removed {
        First first = 0 -> Mark0 or AlphaStep () [] undo undo_first;
        Third third = 2 -> Mark2 or AlphaStep (first: &Mark0) [] handle handle_third;
    }
    6 end_reordered {
        First first = 0 -> Mark0 only Mark0 () [was = "erste",] undo undo_first clean clean_up_first;
        Third third = 2 -> Mark2 or AlphaStep (first: &Mark0) [was = "dritte",] undo undo_third handle handle_third;
        Second second = 1 -> Mark1 or AlphaStep () [was = "zweite",] undo undo_second;
    }
    7 fullest {
        Early early = 4 -> Mark4 only Mark4 () [] undo undo_early clean clean_up_early;
        First first = 0 -> Mark0 only Mark0 () [] undo undo_first handle handle_first clean clean_up_first;
        Second second = 1 -> Mark1 or AlphaStep (first: Option<&Mark0>) [] undo undo_second handle handle_second;
        Extra extra = 3 -> Mark3 only Mark3 () [sleep = "40ms",] undo undo_extra handle handle_extra clean clean_up_extra;
        Third third = 2 -> Mark2 or AlphaStep (extra: Option<&Mark3>) [] undo undo_third;
        Late late = 5 -> Mark5 or AlphaStep () [] undo undo_late;
    }
    8 inserted_elsewhere {
        First first = 0 -> Mark0 or AlphaStep () [] undo undo_first;
        Extra extra = 3 -> Mark3 or AlphaStep () [] undo undo_extra;
        Second second = 1 -> Mark1 or AlphaStep () [] undo undo_second;
        Third third = 2 -> Mark2 or AlphaStep (extra: Option<&Mark3>) [] undo undo_third;
    }
    9 uncompensated {
        First first = 0 -> Mark0 or AlphaStep () [];
        Second second = 1 -> Mark1 or AlphaStep (first: &Mark0) [] undo undo_second;
        Third third = 2 -> Mark2 only Mark2 () [] clean clean_up_third;
    }
    10 needing {
        Early early = 4 -> Mark4 or AlphaStep () [] undo undo_early;
        First first = 0 -> Mark0 or AlphaStep () [] undo undo_first handle handle_first;
        Second second = 1 -> Mark1 only Mark1 () [] undo undo_second clean clean_up_second;
        Third third = 2 -> Mark2 or AlphaStep (early: &Mark4) [] undo undo_third;
    }
    11 replaced {
        First first = 0 -> Mark0 or AlphaStep () [] undo undo_first;
        Extra extra = 3 -> Mark3 or AlphaStep () [] undo undo_extra;
        Third third = 2 -> Mark2 or AlphaStep () [] undo undo_third;
    }
    12 asleep {
        First first = 0 -> Mark0 or AlphaStep () [sleep = "30ms",] undo undo_first handle handle_first;
        Zweite zweite = 1 -> Mark1 or AlphaStep (first: &Mark0) [was = "second", sleep = "60ms",] undo undo_second;
        Third third = 2 -> Mark2 only Mark2 () [] undo undo_third handle handle_third clean clean_up_third;
    }
}

versions! {
    "beta", One, Beta, BetaStep, provide_beta, beta, Beta:
    1 beta_inserted {
        First first = 0 -> Mark0 or BetaStep () [retry(max = 2, backoff = "20ms..1s"),] undo undo_first;
        Extra extra = 2 -> Mark2 or BetaStep () [] undo undo_extra handle handle_extra;
        Second second = 1 -> Mark1 or BetaStep () [] undo undo_second;
    }
    2 beta_renamed {
        Erste erste = 0 -> Mark0 or BetaStep () [was = "first",] undo undo_first handle handle_first;
        Zweite zweite = 1 -> Mark1 only Mark1 (first: &Mark0) [was = "second",] undo undo_second clean clean_up_second;
    }
    3 beta_removed {
        Second second = 1 -> Mark1 or BetaStep () [] undo undo_second;
    }
}

/// The sagas that have versions, in the versions of the scenario.
pub(crate) fn definitions(scenario: &Scenario) -> Vec<scoop::Definition> {
    let mut numbers: [Vec<u8>; 2] = Default::default();
    for versions in scenario.versions() {
        for (known, version) in numbers.iter_mut().zip(versions) {
            known.push(version);
        }
    }
    let [alphas, betas] = numbers.map(|mut numbers| {
        if numbers.is_empty() {
            numbers.push(0);
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    });
    alphas.into_iter().map(alpha).chain(betas.into_iter().map(beta)).collect()
}

/// The number in the scripts of a step of a saga that has versions.
pub(crate) fn number(saga: &str, step: &str) -> Option<usize> {
    match (saga, step) {
        ("alpha" | "beta", "first" | "erste") => Some(0),
        ("alpha" | "beta", "second" | "zweite") => Some(1),
        ("alpha", "third" | "dritte") | ("beta", "extra") => Some(2),
        ("alpha", "extra") => Some(3),
        ("alpha", "early") => Some(4),
        ("alpha", "late") => Some(5),
        _ => None,
    }
}

/// The definition of a version of a saga that has versions.
pub(crate) fn definition(saga: &str, version: u8) -> Option<scoop::Definition> {
    match saga {
        "alpha" => Some(alpha(version)),
        "beta" => Some(beta(version)),
        _ => None,
    }
}
