//! Acknowledged writes that a killed daemon loses: the next flush reports it, once, and no other loss.

use zc_tests::{MIB, World};

/// A world whose volume writes back, and stays dirty until a command.
fn world(ack: &str) -> World {
    let mut world = World::new(64, 16);
    world.cache.push_str("weu_size = \"256 KiB\"\ndestage_idle = \"1 h\"\n");
    set_ack(&mut world, ack);
    world
}

fn set_ack(world: &mut World, ack: &str) {
    world.volumes[0].2 = format!("mode = \"write-back\"\nmax_dirty_age = \"24 h\"\nack = \"{ack}\"\n");
}

#[test]
fn a_loss_is_told_once_whatever_the_new_configuration_says() {
    let mut world = world("volatile");
    let daemon = world.start();
    let mut disk = world.connect("disk");
    disk.write(0, &[1; 8192]).expect("write");
    disk.flush().expect("flush");
    disk.write(0, &[2; 8192]).expect("acknowledged, not flushed");
    daemon.kill9();
    set_ack(&mut world, "durable");
    let daemon = world.start();
    // The report is due until a client receives it, over kills and an orderly stop.
    daemon.kill9();
    let daemon = world.start();
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = world.start();
    let mut disk = world.connect("disk");
    disk.write(MIB, &[3; 8192]).expect("write");
    disk.flush().expect_err("writes before it are lost");
    disk.flush().expect("it is told once");
    assert_eq!(disk.read(MIB, 8192).expect("read"), [3; 8192]);
    daemon.kill9();
    let daemon = world.start();
    world.connect("disk").flush().expect("nothing was lost since");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_kill_that_lost_nothing_fails_no_flush() {
    for ack in ["volatile", "durable"] {
        let mut world = world(ack);
        let daemon = world.start();
        let mut disk = world.connect("disk");
        for at in 0..8 {
            disk.write(at * MIB, &[7; 8192]).expect("write");
        }
        if ack == "volatile" {
            disk.flush().expect("flush");
        }
        daemon.kill9();
        // The setting that counts is the one that was in force.
        set_ack(&mut world, "volatile");
        let daemon = world.start();
        let mut disk = world.connect("disk");
        disk.flush().expect("nothing was lost");
        assert_eq!(disk.read(7 * MIB, 8192).expect("read"), [7; 8192]);
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

#[test]
fn without_its_record_of_the_session_a_start_takes_the_worst_for_granted() {
    let world = world("volatile");
    let daemon = world.start();
    let mut disk = world.connect("disk");
    disk.write(0, &[1; 8192]).expect("write");
    disk.flush().expect("flush");
    daemon.kill9();
    std::fs::remove_file(world.volatile_file("risk").expect("a risk file")).expect("cannot remove");
    let daemon = world.start();
    let mut disk = world.connect("disk");
    disk.flush().expect_err("it is not known that nothing was lost");
    disk.flush().expect("it is told once");
    assert_eq!(daemon.terminate().code(), Some(0));
}
