#![allow(unused)]
include!("../orders.rs");

mod every_and_cron {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(every = "1h", cron = "0 3 * * *")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

mod every_is_no_duration {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(every = "hourly")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

mod every_nothing {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(every = "0s")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

mod every_too_long {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(every = "36500d")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

mod every_too_short {
    use super::*;

    #[derive(Default)]
    struct Report;

    #[saga(every = "1ms")]
    #[subscribes(Tick)]
    impl Report {
        #[step]
        async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
