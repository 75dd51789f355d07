# Runs one of SQLite's test files in a `testfixture` with every database file in WAL mode, or lists the files of a set.
#
#   testfixture one_file.tcl run TESTDIR FILE
#   testfixture one_file.tcl list TESTDIR SET
#
# WAL is asked for each time a connection is opened, as `PRAGMA journal_mode=wal` by a program would. PLAIT_JOURNAL_MODE
# in the environment makes that concurrent mode.

lassign $argv what testdir name
set argv [list --verbose=1]
set argv0 $testdir/permutations.test

if {$what eq "list"} {
  namespace eval trd { variable tcltest 1 }
  # Ends in an error for want of a set to run, when all sets have been defined.
  catch { source $testdir/permutations.test }
  array set spec $::testspec($name)
  puts [join [lsort -unique $spec(-files)] \n]
  exit 0
}

source $testdir/tester.tcl
db close
set ::G(perm:name) wal
set ::G(perm:prefix) ""
set ::G(perm:presql) ""
set ::G(perm:dbconfig) {
  # A file that is no database, is locked or cannot be written stays what it is: the test is about that.
  catch { $::dbhandle eval { PRAGMA journal_mode=wal } }
}
set ::G(isquick) 1
if {[file pathtype $name] ne "absolute"} { set name [file join $testdir $name] }
slave_test_file $name
finish_test
