use scoop::prelude::*;

#[derive(Default)]
struct Report;

#[saga(every = "1h", name = "a-report-of-everything-that-happened-since-the-last-such-report")]
#[subscribes(Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

fn main() {}
