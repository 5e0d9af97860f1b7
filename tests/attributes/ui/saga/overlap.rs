#![allow(unused)]
include!("../orders.rs");

mod missed_unknown {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(every = "1h", missed = "al")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

mod overlap_of_all_missed {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(every = "1h", missed = "all", overlap = "skip")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

mod overlap_unknown {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(every = "1h", overlap = "queue")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
