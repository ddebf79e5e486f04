-- Dissects niclab's frames in Wireshark and tshark. Wire formats: docs/driver/DEVICE.md.
--
--   wireshark -X lua_script:tools/wireshark/niclab.lua capture.pcapng
--   tshark -X lua_script:tools/wireshark/niclab.lua -r capture.pcapng -V
--
-- The frames of all NIC models have the same EtherType. A byte after the Ethernet header names the model. Each model
-- has a file in models/, which gets the functions that dissectors share, and returns its protocol and its dissector.
--
-- Every Wireshark includes the library `bit`, with any version of Lua.

local ETHER_TYPE = 0x88b5

local cluster = Proto("niclab", "niclab frame of an unknown protocol")
local protocol = ProtoField.uint8("niclab.protocol", "Protocol")
cluster.fields = { protocol }

local shared = { crc32 = dofile(__DIR__ .. "/crc32.lua") }
local dissectors = {}
local folder = __DIR__ .. "/models/"
for name in Dir.open(folder, ".lua") do
    local model = assert(loadfile(folder .. name))(shared)
    assert(not dissectors[model.protocol], name .. ": another model has its protocol")
    dissectors[model.protocol] = model.dissector
end

function cluster.dissector(buffer, pinfo, root)
    if buffer:len() == 0 then
        return 0
    end
    local known = dissectors[buffer(0, 1):uint()]
    if known then
        return known.dissector(buffer, pinfo, root)
    end
    pinfo.cols.protocol = "niclab"
    root:add(cluster, buffer()):add(protocol, buffer(0, 1))
    return buffer:len()
end

DissectorTable.get("ethertype"):add(ETHER_TYPE, cluster)
