-- Dissects niclab's frames in Wireshark and tshark. Wire formats: docs/driver/DEVICE.md.
--
--   wireshark -X lua_script:tools/wireshark/niclab.lua capture.pcapng
--   tshark -X lua_script:tools/wireshark/niclab.lua -r capture.pcapng -V
--
-- The frames of all NIC models have the same EtherType. The first byte after the Ethernet header is the protocol
-- number, which identifies the model. Each file in models/ defines the dissector of one model. This script runs the
-- file with a table of shared functions as its argument. The file returns a table with two fields: `protocol` is the
-- model's protocol number, and `dissector` is its Proto.
--
-- The scripts use the Lua library `bit`, which every version of Wireshark includes.

-- The first of the EtherTypes that IEEE 802 reserves for local experiments.
local ETHER_TYPE = 0x88b5

local niclab = Proto("niclab", "niclab frame with an unknown protocol number")
local protocol = ProtoField.uint8("niclab.protocol", "Protocol")
niclab.fields = { protocol }

local shared = { crc32 = dofile(__DIR__ .. "/crc32.lua") }
local protos = {}
local folder = __DIR__ .. "/models/"
for name in Dir.open(folder, ".lua") do
    local model = assert(loadfile(folder .. name))(shared)
    assert(not protos[model.protocol],
        string.format("%s%s: another file in models/ also has protocol number %d", folder, name, model.protocol))
    protos[model.protocol] = model.dissector
end

function niclab.dissector(buffer, pinfo, root)
    if buffer:len() == 0 then
        return 0
    end
    local proto = protos[buffer(0, 1):uint()]
    if proto then
        return proto.dissector(buffer, pinfo, root)
    end
    pinfo.cols.protocol = "niclab"
    root:add(niclab, buffer()):add(protocol, buffer(0, 1))
    return buffer:len()
end

DissectorTable.get("ethertype"):add(ETHER_TYPE, niclab)
