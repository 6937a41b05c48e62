pragma page_size=16384;
pragma journal_mode=wal;
BEGIN TRANSACTION;
CREATE TABLE block(
    id integer primary key, topic text not null, topic_id text, partition integer not null,
    first integer not null, last integer not null, count integer not null, bytes integer not null,
    state text not null default 'pending', body blob not null);
INSERT INTO "block" VALUES(1,'t','A',0,1,2,2,74,'pending',X'4B4202000000003EAF97D85185A16FC0A174C6000000100A000000000000001400000000000000A16BC0A17692C6000000080400000004000000C6000000083030303130303032A168C0');
INSERT INTO "block" VALUES(2,'t','A',0,3,5,3,90,'pending',X'4B4202000000004E11C4ED5485A16FC0A174C6000000181E0000000000000028000000000000003200000000000000A16BC0A17692C60000000C040000000400000004000000C60000000C303030333030303430303035A168C0');
INSERT INTO "block" VALUES(5,'t','A',0,12,14,3,90,'pending',X'4B4202000000004E731A014585A16FC0A174C600000018780000000000000082000000000000008C00000000000000A16BC0A17692C60000000C040000000400000004000000C60000000C303031323030313330303134A168C0');
INSERT INTO "block" VALUES(6,'t','B',1,7,9,3,90,'pending',X'4B4202000000004E061DEFC685A16FC0A174C600000018460000000000000050000000000000005A00000000000000A16BC0A17692C60000000C040000000400000004000000C60000000C303030373030303830303039A168C0');
INSERT INTO "block" VALUES(7,'t','B',1,10,12,3,90,'pending',X'4B4202000000004E77A37C3C85A16FC0A174C60000001864000000000000006E000000000000007800000000000000A16BC0A17692C60000000C040000000400000004000000C60000000C303031303030313130303132A168C0');
CREATE TABLE boot(id text not null);
INSERT INTO "boot" VALUES('first');
CREATE TABLE dead( id integer primary key autoincrement, topic text not null, topic_id text, partition integer not null, first integer not null, last integer not null, count integer not null, bytes integer not null, tries integer not null, error text not null, at real not null, damaged integer not null, body blob not null);
INSERT INTO "dead" VALUES(1,'t','A',0,7,7,1,58,1,'ValueError: käse
Traceback',1700000001.0,0,X'4B4202000000002EBB563BE785A16FC0A174C6000000084600000000000000A16BC0A17692C60000000404000000C60000000430303037A168C0');
INSERT INTO "dead" VALUES(2,'t','A',0,8,8,1,58,1,'ValueError: käse
Traceback',1700000001.0,0,X'4B4202000000002E6018158985A16FC0A174C6000000085000000000000000A16BC0A17692C60000000404000000C60000000430303038A168C0');
INSERT INTO "dead" VALUES(3,'t',NULL,3,7,7,1,94,4,'handler refused',1700000001.0,0,X'4B420200000000528272ED1585A16FC0A174C6000000080500000000000000A16B92C60000000401000000C6000000016BA176C0A16892C60000000419000000C6000000195B7B226B223A202268222C202276223A20222F773D3D227D5D');
INSERT INTO "dead" VALUES(4,'t','A',0,9,11,3,3,0,'these bytes are not a block',1700000001.0,1,X'4B42FF');
CREATE TABLE mark(
    topic text not null, partition integer not null, topic_id text, next integer not null, committed integer,
    primary key (topic, partition)) without rowid;
INSERT INTO "mark" VALUES('t',0,'A',15,3);
INSERT INTO "mark" VALUES('t',1,'B',13,3);
CREATE TABLE tally( topic text not null, partition integer not null, state text not null, messages integer not null, bytes integer not null, primary key (topic, partition, state)) without rowid;
INSERT INTO "tally" VALUES('t',0,'dead',5,119);
INSERT INTO "tally" VALUES('t',0,'delayed',2,74);
INSERT INTO "tally" VALUES('t',0,'pending',3,90);
INSERT INTO "tally" VALUES('t',0,'processing',3,90);
INSERT INTO "tally" VALUES('t',1,'pending',6,180);
INSERT INTO "tally" VALUES('t',3,'dead',1,94);
CREATE TABLE turn( id integer primary key, topic text not null, partition integer not null, count integer not null, bytes integer not null, state text not null, since real not null, tries integer not null default 0, owner text, token text, leased_at real, until real);
INSERT INTO "turn" VALUES(1,'t',0,2,74,'delayed',1700000000.0,1,NULL,NULL,NULL,2001.0);
INSERT INTO "turn" VALUES(2,'t',0,3,90,'processing',1700000000.0,0,'b','00000000000000000000000000000003',1001.0,1061.0);
INSERT INTO "turn" VALUES(5,'t',0,3,90,'pending',1700000000.0,0,NULL,NULL,NULL,NULL);
INSERT INTO "turn" VALUES(6,'t',1,3,90,'pending',1700000001.0,0,NULL,NULL,NULL,NULL);
INSERT INTO "turn" VALUES(7,'t',1,3,90,'pending',1700000001.0,0,NULL,NULL,NULL,NULL);
CREATE INDEX turn_ready on turn(id) where state='pending';
CREATE INDEX turn_until on turn(until) where until is not null;
CREATE INDEX turn_owner on turn(owner) where owner is not null;
CREATE INDEX turn_line on turn(topic, partition);
CREATE INDEX dead_line on dead(topic, partition, first);
CREATE TRIGGER turn_begins after insert on turn begin 
    insert into tally values (new.topic, new.partition, new.state, + new.count, + new.bytes)
        on conflict do update set messages=messages+excluded.messages, bytes=bytes+excluded.bytes;
 end;
CREATE TRIGGER turn_changes after update of state, count, bytes on turn begin 
    insert into tally values (old.topic, old.partition, old.state, - old.count, - old.bytes)
        on conflict do update set messages=messages+excluded.messages, bytes=bytes+excluded.bytes;

    insert into tally values (new.topic, new.partition, new.state, + new.count, + new.bytes)
        on conflict do update set messages=messages+excluded.messages, bytes=bytes+excluded.bytes;
 end;
CREATE TRIGGER turn_ends after delete on turn begin 
    insert into tally values (old.topic, old.partition, old.state, - old.count, - old.bytes)
        on conflict do update set messages=messages+excluded.messages, bytes=bytes+excluded.bytes;
 end;
CREATE TRIGGER dead_comes after insert on dead begin 
    insert into tally values (new.topic, new.partition, 'dead', + new.count, + new.bytes)
        on conflict do update set messages=messages+excluded.messages, bytes=bytes+excluded.bytes;
 end;
CREATE TRIGGER dead_goes after delete on dead begin 
    insert into tally values (old.topic, old.partition, 'dead', - old.count, - old.bytes)
        on conflict do update set messages=messages+excluded.messages, bytes=bytes+excluded.bytes;
 end;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('dead',4);
COMMIT;
pragma user_version=2;
